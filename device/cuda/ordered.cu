#include "device/cuda/ordered.h"

#include <cstdint>
#include <limits>

#include "device/cuda/map_kernel.h"

namespace gradwire::cuda {
namespace {

// How a type lies in memory: the bits of its infinity and of the NaN that reductions give, and the
// integers that stand for its numbers.
template <typename BitsType, typename IntegerType, BitsType Infinity, BitsType QuietNan>
struct OrderedLayout {
  using Bits = BitsType;
  using Integer = IntegerType;
  static constexpr Bits kInfinity = Infinity;
  static constexpr Bits kNan = QuietNan;
  static constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
};
using F64 =
    OrderedLayout<std::uint64_t, std::int64_t, 0x7ff0'0000'0000'0000ull, 0x7ff8'0000'0000'0000ull>;
using F32 = OrderedLayout<std::uint32_t, std::int32_t, 0x7f80'0000u, 0x7fc0'0000u>;
using F16 = OrderedLayout<std::uint16_t, std::int32_t, 0x7c00u, 0x7e00u>;
using BF16 = OrderedLayout<std::uint16_t, std::int32_t, 0x7f80u, 0x7fc0u>;

// Magnitudes are ordered as their bits are; -0 is -1, below +0, which is 0. No number's integer is
// that of the NaN: it would be beyond the infinities.
template <class As>
struct IntegerOf {
  typename As::Integer nan;
  constexpr typename As::Integer operator()(typename As::Integer, typename As::Bits bits) const {
    const auto magnitude = static_cast<typename As::Bits>(bits & ~As::kSign);
    const auto integer = static_cast<typename As::Integer>(magnitude);
    if (magnitude > As::kInfinity) return nan;
    return (bits & As::kSign) != 0 ? -1 - integer : integer;
  }
};

template <class As>
struct NumberOf {
  constexpr typename As::Bits operator()(typename As::Bits, typename As::Integer integer) const {
    const bool negative = integer < 0;
    const typename As::Integer magnitude = negative ? -1 - integer : integer;
    if (magnitude > static_cast<typename As::Integer>(As::kInfinity)) return As::kNan;
    const auto bits = static_cast<typename As::Bits>(magnitude);
    return negative ? static_cast<typename As::Bits>(bits | As::kSign) : bits;
  }
};

// call.operator()<OrderedLayout>() for a floating dtype.
template <typename Call>
Status with_layout(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::kF64: return call.template operator()<F64>();
    case DType::kF16: return call.template operator()<F16>();
    case DType::kBF16: return call.template operator()<BF16>();
    default: return call.template operator()<F32>();
  }
}

}  // namespace

Status to_ordered(ReduceOp op, ConstTensorView numbers, TensorView ordered, const Stream& stream) {
  return with_layout(numbers.dtype(), [&]<class As>() {
    using Limits = std::numeric_limits<typename As::Integer>;
    const IntegerOf<As> each{op == ReduceOp::kMin ? Limits::min() : Limits::max()};
    return map<typename As::Integer, typename As::Bits>(
        "to_ordered", numbers.data(), ordered.data(), numbers.elems(), each, stream);
  });
}

Status from_ordered(ConstTensorView ordered, TensorView numbers, const Stream& stream) {
  return with_layout(numbers.dtype(), [&]<class As>() {
    return map<typename As::Bits, typename As::Integer>(
        "from_ordered", ordered.data(), numbers.data(), numbers.elems(), NumberOf<As>{}, stream);
  });
}

}  // namespace gradwire::cuda
