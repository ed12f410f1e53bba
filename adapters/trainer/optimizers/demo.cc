#include "adapters/trainer/optimizers/demo.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/elements.h"
#include "base/small_floats.h"
#include "base/text.h"
#include "trainer/step/clipping.h"

namespace gradwire {
namespace {

constexpr std::int64_t kPlaceBits = 12;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::size_t place_bytes(std::int64_t topk) {
  return static_cast<std::size_t>((topk * kPlaceBits + 7) / 8);
}

void put_place(std::span<std::byte> places, std::int64_t j, std::uint16_t place) {
  const auto at = static_cast<std::size_t>(j * kPlaceBits / 8);
  if (j % 2 == 0) {
    places[at] = static_cast<std::byte>(place & 0xffu);
    places[at + 1] = static_cast<std::byte>(place >> 8);
  } else {
    places[at] |= static_cast<std::byte>((place & 0xfu) << 4);
    places[at + 1] = static_cast<std::byte>(place >> 4);
  }
}

std::uint16_t place_at(std::span<const std::byte> places, std::int64_t j) {
  const auto at = static_cast<std::size_t>(j * kPlaceBits / 8);
  const auto low = static_cast<unsigned>(places[at]);
  const auto high = static_cast<unsigned>(places[at + 1]);
  return static_cast<std::uint16_t>(j % 2 == 0 ? low | (high & 0xfu) << 8 : low >> 4 | high << 4);
}

void put_value(std::byte* to, std::uint16_t value) {
  to[0] = static_cast<std::byte>(value & 0xffu);
  to[1] = static_cast<std::byte>(value >> 8);
}

float value_at(const std::byte* from) {
  return float_from_bf16(static_cast<std::uint16_t>(static_cast<unsigned>(from[0]) |
                                                    static_cast<unsigned>(from[1]) << 8));
}

}  // namespace

Demo::Demo(Parts parts) : Method(std::move(parts)) {}

Demo::Cut Demo::cut_of(const Shape& shape, const MethodOptions& options) {
  Cut cut{};
  cut.rows = shape.rank > 1 ? shape.dim[0] : 1;
  cut.columns = shape.elems() / std::max<std::int64_t>(cut.rows, 1);
  cut.height = largest_divisor(cut.rows, options.chunk);
  cut.width = largest_divisor(cut.columns, options.chunk);
  cut.topk = std::min(options.topk, cut.height * cut.width);
  cut.payload = place_bytes(cut.topk) + static_cast<std::size_t>(cut.topk) * 2;
  return cut;
}

Result<std::unique_ptr<Method>> Demo::create(Parts parts) {
  const std::vector<NamedTensor> tensors = parts.gradients;
  std::unique_ptr<Demo> own(new Demo(std::move(parts)));
  std::size_t largest = 0;
  for (const NamedTensor& named : tensors) {
    const Cut cut = cut_of(named.tensor.shape(), own->options());
    own->dcts_.try_emplace(cut.height, cut.height);
    own->dcts_.try_emplace(cut.width, cut.width);
    own->payload_bytes_ += static_cast<std::size_t>(cut.chunks()) * cut.payload;
    largest = std::max(largest, static_cast<std::size_t>(cut.height * cut.width));
    own->cuts_.push_back(cut);
  }
  own->chunk_.resize(largest);
  own->coefficients_.resize(largest);
  own->kept_chunk_.reserve(largest);
  own->scratch_.resize(largest);
  own->counts_.resize(largest);
  own->order_.resize(largest);
  GW_ASSIGN(own->momentum_, FlatState::allocate(own->slices(), {"delta"}, own->options().memory));
  if (!own->options().compressor.empty()) {
    return Status(Code::kInvalidArgument, "optimizer demo: compressor '" +
                                              own->options().compressor +
                                              "' (expected none: demo encodes its payload itself)");
  }
  return std::unique_ptr<Method>(std::move(own));
}

Status Demo::before_step(double learning_rate) {
  rate_ = static_cast<float>(learning_rate);
  return {};
}

// chunk_ <- that chunk of the tensor, or the tensor's chunk <- chunk_.
void Demo::move(const Cut& cut, std::int64_t chunk, std::span<float> tensor, bool gather) {
  const std::int64_t across = cut.columns / cut.width;
  const std::int64_t first = chunk / across * cut.height * cut.columns + chunk % across * cut.width;
  for (std::int64_t row = 0; row < cut.height; ++row) {
    float* line = tensor.data() + first + row * cut.columns;
    float* own = chunk_.data() + row * cut.width;
    if (gather) {
      std::copy_n(line, cut.width, own);
    } else {
      std::copy_n(own, cut.width, line);
    }
  }
}

// coefficients_ holds those of the chunk; leaves in it what was sent, and zeros elsewhere.
Status Demo::encode_chunk(const Cut& cut, std::span<std::byte> payload) {
  const std::int64_t elems = cut.height * cut.width;
  const auto order = std::span(order_).first(static_cast<std::size_t>(elems));
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  const auto stronger = [this](std::uint16_t a, std::uint16_t b) {
    const float left = std::abs(coefficients_[a]);
    const float right = std::abs(coefficients_[b]);
    return left > right || (left == right && a < b);
  };
  const auto end = order.begin() + cut.topk;
  if (cut.topk < elems) std::nth_element(order.begin(), end, order.end(), stronger);
  std::sort(order.begin(), end);
  std::fill(payload.begin(), payload.end(), std::byte{0});
  std::byte* values = payload.data() + place_bytes(cut.topk);
  for (std::int64_t j = 0; j < cut.topk; ++j) {
    const std::uint16_t place = order[static_cast<std::size_t>(j)];
    put_place(payload, j, place);
    put_value(values + 2 * j, bf16_from_float(coefficients_[place]));
  }
  std::fill_n(coefficients_.begin(), elems, 0.0F);
  for (std::int64_t j = 0; j < cut.topk; ++j) {
    const float value = value_at(values + 2 * j);
    if (!std::isfinite(value)) return {Code::kInvalidArgument, "a coefficient is not finite"};
    coefficients_[order[static_cast<std::size_t>(j)]] = value;
  }
  return {};
}

Status Demo::encode(int tensor, std::span<std::byte> payload) {
  const Cut& cut = cuts_[static_cast<std::size_t>(tensor)];
  const std::span<float> d = part(momentum_[0], tensor);
  const std::span<const float> g = gradient(tensor);
  const auto keep = static_cast<float>(options().optimizer.momentum);
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = keep * d[i] + rate_ * g[i];
  const std::string& name = slices()[static_cast<std::size_t>(tensor)].name;
  if (!all_finite(d)) {
    return {Code::kInvalidArgument, "demo: the momentum of '" + name + "' is not finite"};
  }
  const auto elems = static_cast<std::size_t>(cut.height * cut.width);
  for (std::int64_t chunk = 0; chunk < cut.chunks(); ++chunk) {
    move(cut, chunk, d, true);
    dct_forward(dct(cut.height), dct(cut.width), std::span(chunk_).first(elems),
                std::span(coefficients_).first(elems), scratch_);
    GW_TRY(encode_chunk(cut,
                        payload.subspan(static_cast<std::size_t>(chunk) * cut.payload, cut.payload))
               .with_context("demo: '" + name + "'"));
    // What was sent leaves the momentum: chunk_ becomes chunk - sent.
    const auto sent = std::span(chunk_).first(elems);
    kept_chunk_.assign(sent.begin(), sent.end());
    dct_inverse(dct(cut.height), dct(cut.width), std::span(coefficients_).first(elems), sent,
                scratch_);
    for (std::size_t i = 0; i < elems; ++i) sent[i] = kept_chunk_[i] - sent[i];
    move(cut, chunk, d, false);
  }
  return {};
}

// coefficients_ <- the mean per place over the ranks that sent it; `at`: of the chunk in a payload.
Status Demo::decode_chunk(const Cut& cut, std::size_t at) {
  const std::int64_t elems = cut.height * cut.width;
  std::fill_n(coefficients_.begin(), elems, 0.0F);
  std::fill_n(counts_.begin(), elems, 0);
  for (int rank = 0; rank < communicator().size(); ++rank) {
    const auto payload = std::span<const std::byte>(received_).subspan(
        static_cast<std::size_t>(rank) * payload_bytes_ + at, cut.payload);
    const std::byte* values = payload.data() + place_bytes(cut.topk);
    int before = -1;
    for (std::int64_t j = 0; j < cut.topk; ++j) {
      const int place = place_at(payload, j);
      const float value = value_at(values + 2 * j);
      if (place <= before || place >= elems || !std::isfinite(value)) {
        return {Code::kCorruptPayload,
                format("demo: rank %d sent place %d and value %g (expected places ascending below "
                       "%lld and finite values)",
                       rank, place, static_cast<double>(value), static_cast<long long>(elems))};
      }
      before = place;
      coefficients_[static_cast<std::size_t>(place)] += value;
      ++counts_[static_cast<std::size_t>(place)];
    }
  }
  for (std::int64_t i = 0; i < elems; ++i) {
    const int count = counts_[static_cast<std::size_t>(i)];
    if (count > 1) coefficients_[static_cast<std::size_t>(i)] /= static_cast<float>(count);
  }
  return {};
}

// The gradients' memory <- q.
Status Demo::decode() {
  std::size_t at = 0;
  for (int t = 0; t < tensors(); ++t) {
    const Cut& cut = cuts_[static_cast<std::size_t>(t)];
    const auto elems = static_cast<std::size_t>(cut.height * cut.width);
    for (std::int64_t chunk = 0; chunk < cut.chunks(); ++chunk, at += cut.payload) {
      GW_TRY(decode_chunk(cut, at));
      dct_inverse(dct(cut.height), dct(cut.width), std::span(coefficients_).first(elems),
                  std::span(chunk_).first(elems), scratch_);
      move(cut, chunk, gradient(t), false);
    }
  }
  return {};
}

Status Demo::finish(const Stream&) {
  const auto start = Clock::now();
  sent_.resize(payload_bytes_);  // at the first step: a dry run has none
  received_.resize(payload_bytes_ * static_cast<std::size_t>(communicator().size()));
  std::size_t at = 0;
  for (int t = 0; t < tensors(); ++t) {
    const Cut& cut = cuts_[static_cast<std::size_t>(t)];
    const std::size_t bytes = static_cast<std::size_t>(cut.chunks()) * cut.payload;
    GW_TRY(encode(t, std::span(sent_).subspan(at, bytes)));
    at += bytes;
  }
  own_.encode_seconds += seconds_since(start);
  const auto exchange = Clock::now();
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(communicator().size()),
                                          static_cast<std::int64_t>(payload_bytes_));
  GW_ASSIGN(Work work,
            communicator().all_gather_v(ConstByteSpan(sent_), ByteSpan(received_), lengths));
  GW_TRY(work.wait());
  own_.exchange_seconds += seconds_since(exchange);
  const auto back = Clock::now();
  GW_TRY(decode());
  own_.decode_seconds += seconds_since(back);
  own_.exposed_seconds += seconds_since(start);
  own_.payload_bytes += payload_bytes_;
  const auto dense = static_cast<std::uint64_t>(elems()) * sizeof(float);
  own_.gradient_bytes += dense;
  const auto size = static_cast<std::uint64_t>(communicator().size());
  own_.dense_ring_bytes += dense_ring_bytes(elems(), communicator().rank(), communicator().size());
  own_.wire_bytes += (size - 1) * payload_bytes_;
  return exact().count_step();
}

Status Demo::make_step(std::span<float> x, std::span<const float> g, double lr) {
  const auto rate = static_cast<float>(lr);
  for (int t = 0; t < tensors(); ++t) {
    const float decay = decay_of(t);
    const std::span<float> own = part(x, t);
    const std::span<const float> q = part(g, t);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto sign = static_cast<float>((q[i] > 0) - (q[i] < 0));
      own[i] -= rate * (sign + decay * own[i]);
    }
  }
  set_steps(steps() + 1);
  return {};
}

AggregateStats Demo::stats() const { return own_; }

TrafficBytes Demo::traffic_bytes() const {
  TrafficBytes sent{};
  bytes_of(sent, TrafficClass::kOptimizer) = own_.wire_bytes;
  return sent;
}

std::vector<Method::Kept> Demo::kept() {
  std::vector<Kept> entries;
  for (NamedTensor& named : momentum_.named(slices())) entries.push_back({std::move(named), true});
  return entries;
}

}  // namespace gradwire
