// fp8 as a grid for the kernels of buckets.
#include "base/tiny_floats.h"
#include "compress/cuda/bucket_format.h"
#include "compress/fp8/fp8_device.h"

namespace gradwire::cuda {
namespace {

template <class Float>
struct Fp8Grid {
  using Extent = Magnitude;
  struct Head {
    float scale;
  };
  using Coding = LevelFactors<float>;
  struct Meaning {
    float scale;
    float inverse;
  };
  static constexpr int kHeadBytes = 4;
  static constexpr int bits = 8;
  static constexpr bool draws = false;
  static constexpr bool kGuards = false;

  std::int64_t bucket;

  constexpr Head head_of(const Magnitude& of) const {
    return {std::bit_cast<float>(of.most < 0x7f800000u ? of.most : kNaNScaleBits)};
  }
  constexpr void store(const Head& head, std::byte* to) const { store_float(to, 0, head.scale); }
  constexpr Head load(const std::byte* from) const { return {load_float(from, 0)}; }
  constexpr bool coded(const Head& head) const { return head.scale > 0; }
  constexpr Coding coding_of(const Head& head) const {
    return level_factors<float>(head.scale, Float::kLargest);
  }
  constexpr unsigned code(const Coding& by, float x, unsigned) const {
    return Float::from_float((x * by.before) * by.by);
  }
  constexpr Meaning meaning_of(const Head& head) const { return {head.scale, 1 / Float::kLargest}; }
  constexpr float value(const Meaning& by, unsigned code) const {
    return by.scale * (Float::to_float(code) * by.inverse);
  }
  constexpr bool sound(const Head& head) const {
    const auto bits = std::bit_cast<std::uint32_t>(head.scale);
    return bits < 0x7f800000u || bits == kNaNScaleBits;
  }
  constexpr bool sound(const Meaning&, unsigned code) const {
    return (code & Float::kMagnitudeMask) <= Float::kLargestCode;
  }
};

template <class Float>
Result<std::unique_ptr<WireFormat>> make(const Fp8Kernel& kernel,
                                         const Compressor::Placement& where) {
  const Fp8Grid<Float> grid{static_cast<std::int64_t>(kernel.group)};
  return make_device_format("fp8", BucketsOnDevice<Fp8Grid<Float>>{grid}, where);
}

}  // namespace

Result<std::unique_ptr<WireFormat>> make_fp8_format(const Fp8Kernel& kernel,
                                                    const Compressor::Placement& where) {
  return kernel.type == Fp8Type::kE4M3 ? make<Float8E4M3>(kernel, where)
                                       : make<Float8E5M2>(kernel, where);
}

}  // namespace gradwire::cuda
