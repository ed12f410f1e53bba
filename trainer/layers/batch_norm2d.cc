#include "trainer/layers/batch_norm2d.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "trainer/layers/fixed_sum.h"

namespace gradwire {

template <typename T>
ParameterTable BatchNorm2d<T>::parameters() const {
  const std::int64_t c = shape_.channels;
  return {{"weight", Shape::vector(c), 1, 0, {Init::Kind::kConstant, 1}},
          {"bias", Shape::vector(c), 1, c, {Init::Kind::kConstant, 0}}};
}

template <typename T>
ParameterTable BatchNorm2d<T>::buffers() const {
  const std::int64_t c = shape_.channels;
  return {{"running_mean", Shape::vector(c), 1, 0, {Init::Kind::kConstant, 0}},
          {"running_var", Shape::vector(c), 1, c, {Init::Kind::kConstant, 1}}};
}

template <typename T>
template <typename Term>
double BatchNorm2d<T>::channel_sum(std::int64_t rows, std::int64_t channel, Term term) const {
  double sum = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t first = (r * shape_.channels + channel) * plane();
    sum += fixed_sum_of<double>(plane(), [&](std::int64_t i) { return term(first + i); });
  }
  return sum;
}

// Scratch has values of T, and doubles are what ranks exchange: bytes are copied.
template <typename T>
void BatchNorm2d<T>::put_pair(const LayerPass<T>& pass, std::int64_t at, double first,
                              double second) {
  const std::array<double, 2> both{first, second};
  std::memcpy(std::as_writable_bytes(pass.scratch).data() + at * std::int64_t{sizeof both},
              both.data(), sizeof both);
}

template <typename T>
std::pair<double, double> BatchNorm2d<T>::pair(const LayerPass<T>& pass, std::int64_t at) {
  std::array<double, 2> both{};
  std::memcpy(both.data(), std::as_bytes(pass.scratch).data() + at * std::int64_t{sizeof both},
              sizeof both);
  return {both[0], both[1]};
}

template <typename T>
TensorView BatchNorm2d<T>::pairs(const LayerPass<T>& pass, std::int64_t at, std::int64_t pairs) {
  std::byte* const begin = std::as_writable_bytes(pass.scratch).data();
  return {begin + at * 2 * std::int64_t{sizeof(double)}, Shape::vector(2 * pairs), DType::kF64};
}

template <typename T>
auto BatchNorm2d<T>::own_moments(const LayerPass<T>& pass, std::int64_t channel) const -> Moments {
  const T* x = pass.x.data();
  const double sum = channel_sum(pass.rows, channel, [x](std::int64_t i) { return double(x[i]); });
  const double mean = sum / static_cast<double>(pass.rows * plane());
  return {sum, channel_sum(pass.rows, channel, [x, mean](std::int64_t i) {
            const double off = double(x[i]) - mean;
            return off * off;
          })};
}

template <typename T>
void BatchNorm2d<T>::gather_moments(const LayerPass<T>& pass) const {
  const std::int64_t channels = shape_.channels;
  const std::int64_t own = parts_ * channels;  // behind those of all ranks
  for (std::int64_t c = 0; c < channels; ++c) {
    const Moments moments = own_moments(pass, c);
    put_pair(pass, own + c, moments.sum, moments.around);
  }
  pass.peers->start_gather(pairs(pass, own, channels), pairs(pass, 0, own));
  pass.peers->await();
}

// In rank order, so that all ranks have the same bits.
template <typename T>
auto BatchNorm2d<T>::joined_moments(const LayerPass<T>& pass, std::int64_t channel) const
    -> Moments {
  if (parts_ == 1) return own_moments(pass, channel);
  const auto each = static_cast<double>(pass.rows * plane());
  Moments all;
  for (std::int64_t r = 0; r < parts_; ++r) {
    const auto [sum, around] = pair(pass, r * shape_.channels + channel);
    const auto before = each * static_cast<double>(r);  // values
    if (r > 0) {
      const double off = sum / each - all.sum / before;
      all.around += off * off * before * each / (before + each);
    }
    all.sum += sum;
    all.around += around;
  }
  return all;
}

// The micro-batch's own mean and 1 / deviation into pass.saved, and its sums into pass.statistics.
template <typename T>
void BatchNorm2d<T>::measure(const LayerPass<T>& pass) const {
  const std::int64_t channels = shape_.channels;
  const double values = count(pass);
  const bool collects = pass.context.mode == PassMode::kTrain && !pass.statistics.empty();
  if (collects) pass.statistics[0] += values;
  if (parts_ > 1) gather_moments(pass);
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto [sum, around] = joined_moments(pass, c);
    const double mean = sum / values;
    pass.saved.data()[c] = static_cast<T>(mean);
    pass.saved.data()[channels + c] = static_cast<T>(1 / std::sqrt(around / values + kEpsilon));
    if (!collects) continue;
    pass.statistics.data()[1 + c] += sum;
    pass.statistics.data()[1 + channels + c] += around + mean * sum;  // = sum of x^2
  }
}

template <typename T>
void BatchNorm2d<T>::forward_there(const LayerPass<T>& pass) const {
  const ChannelShape shape{pass.rows, shape_.channels, plane()};
  const bool running = pass.context.mode == PassMode::kEvaluate;
  if (!running) {
    const bool collects = pass.context.mode == PassMode::kTrain;
    pass.device->batch_measure(shape, pass.x, pass.saved,
                               collects ? pass.statistics : std::span<double>());
  }
  pass.device->batch_norm(shape, pass.params, running ? pass.buffers : pass.saved, running, pass.x,
                          pass.y);
}

template <typename T>
void BatchNorm2d<T>::forward(const LayerPass<T>& pass) const {
  if (pass.device != nullptr) return forward_there(pass);
  const std::int64_t channels = shape_.channels;
  const bool running = pass.context.mode == PassMode::kEvaluate;
  if (!running) measure(pass);
  for (std::int64_t line = 0; line < pass.rows * channels; ++line) {
    const std::int64_t c = line % channels;
    T mean = pass.saved.data()[c];
    T scale = pass.saved.data()[channels + c];
    if (running) {
      const auto variance = static_cast<double>(pass.buffers.data()[channels + c]);
      mean = pass.buffers.data()[c];
      scale = static_cast<T>(1 / std::sqrt(variance + kEpsilon));
    }
    const T weight = pass.params.data()[c];
    const T bias = pass.params.data()[channels + c];
    const T* x = pass.x.data() + line * plane();
    T* y = pass.y.data() + line * plane();
    for (std::int64_t i = 0; i < plane(); ++i) y[i] = (x[i] - mean) * scale * weight + bias;
  }
}

template <typename T>
auto BatchNorm2d<T>::gradient_sums(const LayerPass<T>& pass, std::span<const T> dy,
                                   std::int64_t channel) const -> Sums {
  const T* x = pass.x.data();
  const T* d = dy.data();
  const T mean = pass.saved.data()[channel];
  const T scale = pass.saved.data()[shape_.channels + channel];
  return {channel_sum(pass.rows, channel, [d](std::int64_t i) { return double(d[i]); }),
          channel_sum(pass.rows, channel,
                      [=](std::int64_t i) { return double(d[i] * ((x[i] - mean) * scale)); })};
}

template <typename T>
void BatchNorm2d<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                     std::span<T> grads) const {
  if (pass.device != nullptr) {
    return pass.device->batch_norm_params({pass.rows, shape_.channels, plane()}, pass.saved, pass.x,
                                          dy, grads);
  }
  for (std::int64_t c = 0; c < shape_.channels; ++c) {
    const Sums sums = gradient_sums(pass, dy, c);
    grads.data()[c] = static_cast<T>(sums.dy_z);
    grads.data()[shape_.channels + c] = static_cast<T>(sums.dy);
  }
}

template <typename T>
void BatchNorm2d<T>::add_gradient_sums(const LayerPass<T>& pass, std::span<const T> dy) const {
  for (std::int64_t c = 0; c < shape_.channels; ++c) {
    const Sums sums = gradient_sums(pass, dy, c);
    put_pair(pass, c, sums.dy, sums.dy_z);
  }
  pass.peers->start_sum(pairs(pass, 0, shape_.channels));
  pass.peers->await();
}

template <typename T>
auto BatchNorm2d<T>::summed(const LayerPass<T>& pass, std::int64_t channel) const -> Sums {
  const auto [dy, dy_z] = pair(pass, channel);
  return {dy, dy_z};
}

template <typename T>
void BatchNorm2d<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                    std::span<T> dx) const {
  if (pass.device != nullptr) {
    return pass.device->batch_norm_back({pass.rows, shape_.channels, plane()}, pass.params,
                                        pass.saved, pass.x, dy, dx);
  }
  const double values = count(pass);
  if (parts_ > 1) add_gradient_sums(pass, dy);
  for (std::int64_t c = 0; c < shape_.channels; ++c) {
    const Sums sums = parts_ > 1 ? summed(pass, c) : gradient_sums(pass, dy, c);
    const auto mean_dy = static_cast<T>(sums.dy / values);
    const auto mean_dy_z = static_cast<T>(sums.dy_z / values);
    const T mean = pass.saved.data()[c];
    const T scale = pass.saved.data()[shape_.channels + c];
    const T factor = pass.params.data()[c] * scale;
    for (std::int64_t r = 0; r < pass.rows; ++r) {
      const std::int64_t first = (r * shape_.channels + c) * plane();
      const T* x = pass.x.data() + first;
      const T* d = dy.data() + first;
      T* out = dx.data() + first;
      for (std::int64_t i = 0; i < plane(); ++i) {
        out[i] = factor * (d[i] - mean_dy - (x[i] - mean) * scale * mean_dy_z);
      }
    }
  }
}

template <typename T>
void BatchNorm2d<T>::commit(std::span<const double> statistics, std::span<T> buffers) const {
  const double count = statistics[0];
  if (!(count > 0)) return;
  const double unbiased = count > 1 ? count / (count - 1) : 1;
  const std::int64_t channels = shape_.channels;
  const auto move = [](T& running, double now) {
    running = static_cast<T>((1 - kMomentum) * static_cast<double>(running) + kMomentum * now);
  };
  for (std::int64_t c = 0; c < channels; ++c) {
    const double mean = statistics.data()[1 + c] / count;
    const double square = statistics.data()[1 + channels + c] / count;
    move(buffers.data()[c], mean);
    move(buffers.data()[channels + c], std::max(square - mean * mean, 0.0) * unbiased);
  }
}

template class BatchNorm2d<float>;
template class BatchNorm2d<double>;

}  // namespace gradwire
