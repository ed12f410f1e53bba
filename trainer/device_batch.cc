#include "trainer/device_batch.h"

#include "device/host_copy.h"
#include "device/ops.h"
#include "trainer/cuda/make_kernels.h"

namespace gradwire {
namespace {

constexpr Device kPinned{MemorySpace::kPinnedHost, 0};

template <typename T>
std::span<T> values_of(const Buffer& buffer) {
  return {reinterpret_cast<T*>(buffer.bytes().data()), buffer.bytes().size() / sizeof(T)};
}

}  // namespace

Result<std::unique_ptr<DeviceBatch>> DeviceBatch::create(const Model<float>& model,
                                                         std::int64_t rows, std::int64_t labels,
                                                         const MemoryArena& arena) {
  std::unique_ptr<DeviceBatch> made(new DeviceBatch());
  made->input_ = model.input().elems();
  made->labels_ = labels;
  GW_ASSIGN(made->kernels_, make_layer_kernels(arena.stream()));
  const auto inputs = static_cast<std::size_t>(rows * made->input_);
  const auto all = static_cast<std::size_t>(rows * labels);
  GW_ASSIGN(made->samples_here_, Buffer::allocate(inputs * sizeof(float), kPinned));
  GW_ASSIGN(made->labels_here_, Buffer::allocate(all * sizeof(std::uint32_t), kPinned));
  GW_ASSIGN(made->labels_there_, arena.allocate(MemoryClass::kOther, all * sizeof(std::uint32_t)));
  GW_ASSIGN(made->by_label_, arena.allocate(MemoryClass::kOther, 2 * all * sizeof(double)));
  const auto buffers = static_cast<std::size_t>(parameter_elems(model.buffers()));
  if (buffers > 0) {
    GW_ASSIGN(made->buffers_, arena.allocate(MemoryClass::kOther, buffers * sizeof(float)));
    const auto sums = static_cast<std::size_t>(model.statistics_elems());
    GW_ASSIGN(made->statistics_, ReadBack::create(arena, sums * sizeof(double)));
  }
  GW_ASSIGN(made->found_, ReadBack::create(arena, sizeof(Found)));
  return made;
}

std::int64_t DeviceBatch::bytes_there(const Model<float>& model, std::int64_t rows,
                                      std::int64_t labels) {
  constexpr auto kOfLabel = static_cast<std::int64_t>(sizeof(std::uint32_t) + 2 * sizeof(double));
  const std::int64_t buffers = parameter_elems(model.buffers());
  std::int64_t bytes = rows * labels * kOfLabel + static_cast<std::int64_t>(sizeof(Found));
  if (buffers > 0) {
    bytes += buffers * static_cast<std::int64_t>(sizeof(float)) +
             model.statistics_elems() * static_cast<std::int64_t>(sizeof(double));
  }
  return bytes;
}

std::span<float> DeviceBatch::samples(std::int64_t rows) const {
  return values_of<float>(samples_here_).first(static_cast<std::size_t>(rows * input_));
}

std::span<std::uint32_t> DeviceBatch::labels(std::int64_t rows) const {
  return values_of<std::uint32_t>(labels_here_).first(static_cast<std::size_t>(rows * labels_));
}

Status DeviceBatch::load(std::int64_t rows, std::span<float> x) const {
  const Stream stream = kernels_->stream();
  const ConstByteSpan numbers = std::as_bytes(labels(rows));
  GW_TRY(copy_bytes(std::as_bytes(samples(rows)), kPinned, std::as_writable_bytes(x), stream.device,
                    stream));
  return copy_bytes(numbers, kPinned, labels_there_.bytes().first(numbers.size()), stream.device,
                    stream);
}

void DeviceBatch::judge(Loss loss, std::int64_t count, std::span<const float> outputs,
                        std::span<float> by_outputs) {
  const auto judged = static_cast<std::size_t>(count);
  const std::span<const std::uint32_t> labels =
      values_of<const std::uint32_t>(labels_there_).first(judged);
  const std::span<double> by_label = values_of<double>(by_label_).first(2 * judged);
  if (loss == Loss::kSquares) {
    kernels_->squared_error(outputs, labels, by_outputs, by_label, found_.there<double>());
  } else {
    kernels_->cross_entropy(outputs, labels, by_outputs, by_label, found_.there<double>());
  }
}

auto DeviceBatch::found() const -> Result<Found> {
  GW_TRY(kernels_->status());
  GW_ASSIGN(const std::span<const Found> found, found_.read<Found>());
  return found[0];
}

Status DeviceBatch::set_buffers(std::span<const float> values) const {
  if (values.empty()) return {};
  const Stream stream = kernels_->stream();
  GW_TRY(copy_bytes(std::as_bytes(values), Device{}, buffers_.bytes(), stream.device, stream));
  return wait_for(stream);
}

std::span<const float> DeviceBatch::buffers() const { return values_of<const float>(buffers_); }

std::span<double> DeviceBatch::statistics() const { return statistics_.there<double>(); }

Status DeviceBatch::take_statistics(std::span<double> sums) const {
  if (sums.empty()) return {};
  GW_ASSIGN(const std::span<const double> found, statistics_.read<double>());
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += found[i];
  clear_statistics();
  return kernels_->status();
}

void DeviceBatch::clear_statistics() const {
  const std::span<double> sums = statistics();
  kernels_->fill_zeros({reinterpret_cast<float*>(sums.data()), 2 * sums.size()});
}

}  // namespace gradwire
