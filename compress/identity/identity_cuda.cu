// none's format on a device.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "compress/cuda/device_format.h"
#include "compress/identity/identity_device.h"

namespace gradwire::cuda {
namespace {

inline constexpr unsigned kExactNotFinite = 1;
constexpr std::int64_t kExactEach = 4;  // elements of a thread

// wire = p, and what error feedback keeps. Memory: 4 bytes an element in and out; with feedback 4
// more of both.
struct ExactCopy {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;
  using Four = Pack<float, 4>;

  Source source;
  std::byte* wire;
  bool packed;  // all begin at 16 bytes
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kExactEach * (block.block() * kThreads + block.thread());
    if (begin >= source.count) return;
    const bool whole = packed && source.count - begin >= kExactEach;
    const Four p = read(begin, whole);
    Four left = {};
    for (int j = 0; j < kExactEach; ++j) left.at[j] = p.at[j] - p.at[j] * source.own_scale;
    if (whole) {
      *reinterpret_cast<Four*>(wire + 4 * begin) = p;
      if (source.next != nullptr) *reinterpret_cast<Four*>(source.next + begin) = left;
    }
    for (int j = 0; j < kExactEach; ++j) {
      const std::int64_t i = begin + j;
      if (i >= source.count) continue;
      if (!whole) store_float(wire, i, p.at[j]);
      if (source.next == nullptr) continue;
      if (!whole) source.next[i] = left.at[j];
      if (!is_finite(left.at[j])) {
        block.least(verdict, word_of(static_cast<std::uint64_t>(i), kExactNotFinite));
      }
    }
  }

  GW_DEVICE Four read(std::int64_t begin, bool whole) const {
    Four p = {};
    if (whole) {
      p = *reinterpret_cast<const Four*>(source.grad + begin);
      if (source.residual == nullptr) return p;
      const Four e = *reinterpret_cast<const Four*>(source.residual + begin);
      for (int j = 0; j < kExactEach; ++j) p.at[j] += e.at[j];
      return p;
    }
    for (int j = 0; j < kExactEach; ++j) {
      if (begin + j < source.count) p.at[j] = source.at(begin + j);
    }
    return p;
  }
};

// dst = or += wire.
struct ExactValues {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;
  using Four = Pack<float, 4>;

  const std::byte* wire;
  bool add;
  bool packed;
  float* dst;
  std::int64_t count;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kExactEach * (block.block() * kThreads + block.thread());
    if (begin >= count) return;
    if (packed && count - begin >= kExactEach) {
      const Four value = *reinterpret_cast<const Four*>(wire + 4 * begin);
      Four to = value;
      if (add) {
        to = *reinterpret_cast<const Four*>(dst + begin);
        for (int j = 0; j < kExactEach; ++j) to.at[j] += value.at[j];
      }
      *reinterpret_cast<Four*>(dst + begin) = to;
      return;
    }
    for (std::int64_t i = begin; i < count && i < begin + kExactEach; ++i) {
      const float value = load_float(wire, i);
      dst[i] = add ? dst[i] + value : value;
    }
  }
};

struct ExactOnDevice {
  static constexpr bool kTakesAnyBytes = true;
  static constexpr bool kTakesFeedback = true;

  std::size_t bytes(std::size_t elems, int) const { return 4 * elems; }
  std::int64_t seam(int) const { return 1; }
  std::vector<std::size_t> sections(std::size_t elems, int) const { return {4 * elems}; }
  bool refuses(const Source& source) const { return source.next != nullptr; }

  Status encode(const SliceKey&, const Source& source, std::byte* wire, std::uint64_t* verdict,
                const Stream& stream) const {
    const bool packed = starts_at(source.grad, 16) && starts_at(source.residual, 16) &&
                        starts_at(source.next, 16) && starts_at(wire, 16);
    return launch("none: encode", ExactCopy{source, wire, packed, verdict},
                  blocks_for(source.count, kExactEach * ExactCopy::kThreads), stream);
  }
  Status decode(const SliceKey&, const std::byte* wire, bool add, std::span<float> dst,
                std::uint64_t*, const Stream& stream) const {
    const auto count = static_cast<std::int64_t>(dst.size());
    const bool packed = starts_at(wire, 16) && starts_at(dst.data(), 16);
    return launch("none: decode", ExactValues{wire, add, packed, dst.data(), count},
                  blocks_for(count, kExactEach * ExactValues::kThreads), stream);
  }
  Status refused(Finding finding) const {
    return {Code::kInvalidArgument,
            format("element %llu of gradient + residual is not finite (expected finite numbers)",
                   static_cast<unsigned long long>(finding.place))};
  }
};

class ExactDeviceFormat final : public DeviceFormat<ExactOnDevice, ExactFormat> {
 public:
  using DeviceFormat::DeviceFormat;

  Status put_own(ConstTensorView src, const std::optional<Feedback>& feedback, TensorView own,
                 const Stream& stream) override {
    GW_TRY(check("own", own, src.elems()));
    if (own.empty()) return {};
    const OnDevice here(device());
    GW_TRY(here.status());
    Source source = source_of(src, feedback);
    source.next = nullptr;  // which encode() wrote
    return kernels().encode({}, source, own.data(), nullptr, stream);
  }
};

}  // namespace

Result<std::unique_ptr<ExactFormat>> make_exact_format(const Compressor::Placement& where) {
  GW_TRY(check_device_placement("none", where));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return std::unique_ptr<ExactFormat>(
      std::make_unique<ExactDeviceFormat>("none", ExactOnDevice{}, std::move(verdict), where));
}

}  // namespace gradwire::cuda
