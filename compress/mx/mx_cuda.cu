// mx as a grid for the kernels of buckets.
#include <limits>

#include "base/tiny_floats.h"
#include "compress/cuda/bucket_format.h"
#include "compress/mx/mx_device.h"

namespace gradwire::cuda {
namespace {

template <class Float>
struct MxGrid {
  using Extent = Magnitude;
  struct Head {
    unsigned scale;
  };
  struct Coding {
    float factor;
  };
  struct Meaning {
    float factor;  // NaN: all is
  };
  static constexpr int kHeadBytes = 1;
  static constexpr std::int64_t bucket = kMxBlock;
  static constexpr int bits = Float::kBits;
  static constexpr bool draws = false;
  static constexpr bool kGuards = false;
  static constexpr int kExponent = static_cast<int>(Float::kLargestBits >> 23) - 127;

  // 2^exponent for |exponent| <= 127, exact in double and in float.
  static constexpr float power_of_two(int exponent) {
    return static_cast<float>(
        std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52));
  }

  constexpr Head head_of(const Magnitude& of) const {
    const int field = static_cast<int>(of.most >> 23);
    if (field >= 255) return {kMxNaN};
    return {static_cast<unsigned>(field > kExponent ? field - kExponent : 0)};
  }
  constexpr void store(const Head& head, std::byte* to) const {
    *to = static_cast<std::byte>(head.scale);
  }
  constexpr Head load(const std::byte* from) const { return {static_cast<unsigned>(*from)}; }
  constexpr bool coded(const Head& head) const { return head.scale != kMxNaN; }
  constexpr Coding coding_of(const Head& head) const {
    return {power_of_two(127 - static_cast<int>(head.scale < kMxNaN ? head.scale : 0))};
  }
  constexpr unsigned code(const Coding& by, float x, unsigned) const {
    return Float::from_float(x * by.factor);
  }
  constexpr Meaning meaning_of(const Head& head) const {
    if (head.scale == kMxNaN) return {std::numeric_limits<float>::quiet_NaN()};
    return {power_of_two(static_cast<int>(head.scale) - 127)};
  }
  constexpr float value(const Meaning& by, unsigned code) const {
    return Float::to_float(code) * by.factor;
  }
  constexpr bool sound(const Head&) const { return true; }
  // e5m2 under the largest scales reaches beyond fp32.
  constexpr bool sound(const Meaning& by, unsigned code) const {
    return (code & Float::kMagnitudeMask) <= Float::kLargestCode &&
           (by.factor != by.factor || is_finite(value(by, code)));
  }
};

template <class Float>
Result<std::unique_ptr<WireFormat>> make_mx_typed(const Compressor::Placement& where) {
  return make_device_format("mx", BucketsOnDevice<MxGrid<Float>>{}, where);
}

}  // namespace

Result<std::unique_ptr<WireFormat>> make_mx_format(const MxKernel& kernel,
                                                   const Compressor::Placement& where) {
  switch (kernel.type) {
    case MxType::kE4M3: return make_mx_typed<Float8E4M3>(where);
    case MxType::kE5M2: return make_mx_typed<Float8E5M2>(where);
    case MxType::kE3M2: return make_mx_typed<Float6E3M2>(where);
    case MxType::kE2M3: return make_mx_typed<Float6E2M3>(where);
    case MxType::kE2M1: break;
  }
  return make_mx_typed<Float4E2M1>(where);
}

}  // namespace gradwire::cuda
