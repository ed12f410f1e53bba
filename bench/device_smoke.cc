#include "bench/device_smoke.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "base/text.h"
#include "bench/device_bench.h"
#include "compress/error_feedback/ef14.h"
#include "compress/error_feedback/legality.h"
#include "device/cuda/devices.h"
#include "device/cuda/memory_calls.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire::bench {
namespace {

constexpr Stream kHost{};
constexpr Stream kCard{{MemorySpace::kCuda, 0}, nullptr};
constexpr std::int64_t kColumns = 4096;
constexpr int kSteps = 2;

using Bytes = std::vector<std::byte>;

// The other side of a copy is memory of the host, which no later work may find freed.
Status copy_now(ConstByteSpan src, Device from, ByteSpan dst, Device to) {
  GW_TRY(copy_bytes(src, from, dst, to, kCard));
  return cuda::synchronize(kCard);
}

Result<Bytes> bytes_on_host(ConstByteSpan bytes, Device device) {
  Bytes out(bytes.size());
  if (device.space == MemorySpace::kHost) {
    std::ranges::copy(bytes, out.begin());
  } else {
    GW_TRY(copy_now(bytes, device, out, Device{}));
  }
  return out;
}

// One rank's coder at one place, with its memory.
class Side {
 public:
  static Result<Side> open(const Compressor& compressor, const Shape& shape, bool feedback,
                           double scale, const Stream& stream) {
    Side side(shape, stream);
    const Compressor::Placement where{.device = stream.device, .tensor = 1};
    GW_ASSIGN(side.coder_, compressor.open(shape, where));
    if (feedback) {
      GW_ASSIGN(side.coder_, make_ef14(std::move(side.coder_), shape, where, scale));
    }
    const std::size_t bytes = static_cast<std::size_t>(shape.elems()) * sizeof(float);
    GW_ASSIGN(side.gradient_, Buffer::allocate(bytes, stream.device));
    GW_ASSIGN(side.mean_, Buffer::allocate(bytes, stream.device));
    for (int round = 0; round < compressor.traits().rounds; ++round) {
      const std::size_t most = compressor.max_payload_bytes(shape, DType::kF32, round);
      GW_ASSIGN(Buffer room, Buffer::allocate(most, stream.device));
      side.rooms_.push_back(std::move(room));
    }
    return side;
  }

  // A step for these elements. Of each round, the payload as it comes to the host.
  Result<std::vector<Bytes>> step(std::span<const float> gradient, std::uint64_t number) {
    GW_TRY(put(std::as_bytes(gradient)));
    GW_TRY(coder_->begin(gradient_.tensor(shape_, DType::kF32), number, stream_));
    std::vector<Bytes> payloads;
    for (std::size_t round = 0; round < rooms_.size(); ++round) {
      const int r = static_cast<int>(round);
      GW_ASSIGN(const std::size_t count, coder_->encode(r, rooms_[round].bytes(), stream_));
      const std::array<ConstByteSpan, 1> received{rooms_[round].bytes().first(count)};
      GW_ASSIGN(Bytes payload, bytes_on_host(received[0], stream_.device));
      payloads.push_back(std::move(payload));
      GW_TRY(coder_->absorb(r, received, stream_));
    }
    GW_TRY(coder_->finish(mean_.tensor(shape_, DType::kF32), {}, stream_));
    return payloads;
  }

  Result<std::vector<float>> mean() const {
    std::vector<float> out(static_cast<std::size_t>(shape_.elems()));
    const ByteSpan bytes = std::as_writable_bytes(std::span(out));
    if (stream_.device.space == MemorySpace::kHost) {
      std::ranges::copy(mean_.bytes(), bytes.begin());
    } else {
      GW_TRY(copy_now(mean_.bytes(), stream_.device, bytes, Device{}));
    }
    return out;
  }

 private:
  Side(const Shape& shape, const Stream& stream) : shape_(shape), stream_(stream) {}

  Status put(ConstByteSpan bytes) {
    if (stream_.device.space != MemorySpace::kHost) {
      return copy_now(bytes, Device{}, gradient_.bytes(), stream_.device);
    }
    std::ranges::copy(bytes, gradient_.bytes().begin());
    return {};
  }

  Shape shape_;
  Stream stream_;
  std::unique_ptr<Coder> coder_;
  Buffer gradient_;
  Buffer mean_;
  std::vector<Buffer> rooms_;
};

std::vector<float> drawn(std::int64_t elements, std::uint64_t step) {
  const RandomStream draws(1, RandomUse::kTest, 0, 0, 0, step);
  std::vector<float> out(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = draws.uniform(i) - 0.5f;
  return out;
}

// |seen - wanted| / |wanted|; NaNs and infinities that are not alike are an infinite difference.
double difference_of(std::span<const float> seen, std::span<const float> wanted) {
  double apart = 0;
  double whole = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] == wanted[i]) {
      whole += double{wanted[i]} * wanted[i];
      continue;
    }
    if (!std::isfinite(seen[i]) || !std::isfinite(wanted[i])) return INFINITY;
    apart += (double{seen[i]} - wanted[i]) * (double{seen[i]} - wanted[i]);
    whole += double{wanted[i]} * wanted[i];
  }
  if (apart == 0) return 0;
  return whole == 0 ? INFINITY : std::sqrt(apart / whole);
}

Status compare_steps(Side& card, Side& host, std::int64_t elements, SmokeOutcome& outcome) {
  for (int step = 0; step < kSteps; ++step) {
    const auto number = static_cast<std::uint64_t>(step);
    const std::vector<float> gradient = drawn(elements, number);
    GW_ASSIGN(const std::vector<Bytes> seen, card.step(gradient, number));
    GW_ASSIGN(const std::vector<Bytes> wanted, host.step(gradient, number));
    GW_ASSIGN(const std::vector<float> mean, card.mean());
    GW_ASSIGN(const std::vector<float> wanted_mean, host.mean());
    outcome.same_bytes = outcome.same_bytes && seen == wanted;
    outcome.difference = std::max(outcome.difference, difference_of(mean, wanted_mean));
  }
  return {};
}

}  // namespace

Result<SmokeOutcome> smoke(const Registry& registry, const std::string& spec, bool feedback,
                           std::int64_t elements) {
  GW_TRY(cuda::count_devices().error());
  GW_ASSIGN(const std::unique_ptr<Compressor> compressor, registry.make(spec));
  const Shape shape = elements % kColumns == 0 ? Shape::matrix(elements / kColumns, kColumns)
                                               : Shape::vector(elements);
  SmokeOutcome outcome;
  const auto verdict = check_pair(*compressor, shape, {.error_feedback = feedback});
  if (!verdict.has_value()) {
    outcome.refused = verdict.error().message();
    return outcome;
  }
  const double scale = verdict.value().scale;
  auto card = Side::open(*compressor, shape, feedback, scale, kCard);
  if (!card.has_value() && is_refusal(card.error())) {
    outcome.refused = card.error().message();
    return outcome;
  }
  GW_TRY(card.error());
  GW_ASSIGN(Side host, Side::open(*compressor, shape, feedback, scale, kHost));
  GW_TRY(compare_steps(card.value(), host, elements, outcome));
  return outcome;
}

std::string fault_of(const SmokeOutcome& outcome, const std::string& spec) {
  const bool products = spec.starts_with("powersgd") || spec.starts_with("acpsgd");
  if (!outcome.same_bytes && !products) {
    return format("payloads differ from the host's (means by %.3g of their norm)",
                  outcome.difference);
  }
  if (!(outcome.difference <= kMostDifference)) {
    return format("the mean differs from the host's by %.3g of its norm (expected at most %.3g)",
                  outcome.difference, kMostDifference);
  }
  return "";
}

}  // namespace gradwire::bench
