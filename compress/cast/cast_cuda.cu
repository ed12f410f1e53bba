// cast's format on a device: which kernel a slice is packed by.
#include <utility>

#include "base/text.h"
#include "compress/cast/cast_device.h"
#include "compress/cast/cast_thread_kernels.h"
#include "compress/cuda/device_format.h"

namespace gradwire::cuda {
namespace {

struct CastOnDevice {
  HalfType type;
  int ranks;
  static constexpr bool kTakesAnyBytes = true;
  static constexpr bool kTakesFeedback = true;

  std::size_t bytes(std::size_t elems, int) const { return 2 * elems; }
  std::int64_t seam(int) const { return 1; }
  std::vector<std::size_t> sections(std::size_t elems, int) const { return {2 * elems}; }
  bool refuses(const Source& source) const { return source.next != nullptr; }

  HalfFactors factors(int stage) const {
    const double divisor = half_divisor(type, ranks, stage);
    return {static_cast<float>(1.0 / divisor), static_cast<float>(divisor)};
  }
  // call.operator()<Half>()
  template <typename Call>
  Status with_half(const Call& call) const {
    return type == HalfType::kFp16 ? call.template operator()<HalfOfFp16>()
                                   : call.template operator()<HalfOfBf16>();
  }
  template <class Kernel>
  static Status launch_over(const char* name, const Kernel& kernel, std::int64_t count,
                            const Stream& stream) {
    return launch(name, kernel, blocks_for(count, Kernel::kEach * Kernel::kThreads), stream);
  }

  Status encode(const SliceKey& key, const Source& source, std::byte* wire, std::uint64_t* verdict,
                const Stream& stream) const {
    const bool packed = starts_at(source.grad, 16) && starts_at(source.residual, 16) &&
                        starts_at(source.next, 16) && starts_at(wire, 16);
    return with_half([&]<class Half>() {
      const CastElements<Half> kernel{source, factors(key.slice.stage), wire, verdict};
      return packed ? launch_over("cast: encode", CastEights<Half>{kernel}, source.count, stream)
                    : launch_over("cast: encode by elements", kernel, source.count, stream);
    });
  }
  Status decode(const SliceKey& key, const std::byte* wire, bool add, std::span<float> dst,
                std::uint64_t*, const Stream& stream) const {
    return put(wire, factors(key.slice.stage).after, add, dst, stream);
  }
  Status put(const std::byte* wire, float factor, bool add, std::span<float> dst,
             const Stream& stream) const {
    const auto count = static_cast<std::int64_t>(dst.size());
    const bool packed = starts_at(wire, 16) && starts_at(dst.data(), 16);
    return with_half([&]<class Half>() {
      const UncastElements<Half> kernel{wire, factor, add, dst.data(), count};
      return packed ? launch_over("cast: decode", UncastEights<Half>{kernel}, count, stream)
                    : launch_over("cast: decode by elements", kernel, count, stream);
    });
  }
  Status own(const Source& source, int stage, float* dst, const Stream& stream) const {
    return with_half([&]<class Half>() {
      return launch_over("cast: own", CastThrough<Half>{source, factors(stage), dst}, source.count,
                         stream);
    });
  }

  Status refused(Finding finding) const {
    return {Code::kInvalidArgument,
            format("the residual of element %llu of the slice is not finite (expected a finite "
                   "number: the method's range overflowed)",
                   static_cast<unsigned long long>(finding.place))};
  }
};

class CastDeviceFormat final : public DeviceFormat<CastOnDevice, HalfFormat> {
 public:
  using DeviceFormat::DeviceFormat;

  Status put_own(ConstTensorView src, const std::optional<Feedback>& feedback, int stage,
                 TensorView own, const Stream& stream) override {
    GW_TRY(check("own", own, src.elems()));
    if (own.empty()) return {};
    const OnDevice here(device());
    GW_TRY(here.status());
    return kernels().own(source_of(src, feedback), stage, elements<float>(own).data(), stream);
  }
  Status put_mean(ConstByteSpan sum, int stage, TensorView mean, const Stream& stream) override {
    GW_TRY(check("mean", mean, mean.elems()));
    GW_TRY(check_length("cast: sum", sum.size(), bytes(mean.elems(), stage)));
    if (mean.empty()) return {};
    const OnDevice here(device());
    GW_TRY(here.status());
    const CastOnDevice& cast = kernels();
    const double factor = half_divisor(cast.type, cast.ranks, stage) / cast.ranks;
    return cast.put(sum.data(), static_cast<float>(factor), false, elements<float>(mean), stream);
  }
};

}  // namespace

Result<std::unique_ptr<HalfFormat>> make_half_format(HalfType type,
                                                     const Compressor::Placement& where) {
  GW_TRY(check_device_placement("cast", where));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return std::unique_ptr<HalfFormat>(std::make_unique<CastDeviceFormat>(
      "cast", CastOnDevice{type, where.size}, std::move(verdict), where));
}

}  // namespace gradwire::cuda
