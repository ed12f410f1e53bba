#include "base/elements.h"
#include "base/small_floats.h"
#include "compress/cast/cast_kernels.h"
#include "compress/little_endian.h"

namespace gradwire::cpu {
namespace {

struct Fp16 {
  static std::uint16_t round(float value) { return fp16_from_float(value); }
  static float widen(std::uint16_t half) { return float_from_fp16(half); }
};
struct Bf16 {
  static std::uint16_t round(float value) { return bf16_from_float(value); }
  static float widen(std::uint16_t half) { return float_from_bf16(half); }
};

// Calls visit(half, elements) with the types that the arguments name.
template <typename View, typename Visit>
void with_types(HalfType type, View view, const Visit& visit) {
  if (view.empty()) return;
  const auto with_half = [&](auto half) {
    if (view.dtype() == DType::kF64) {
      visit(half, elements<double>(view));
    } else {
      visit(half, elements<float>(view));
    }
  };
  if (type == HalfType::kFp16) {
    with_half(Fp16{});
  } else {
    with_half(Bf16{});
  }
}

}  // namespace

void to_half(HalfType type, ConstTensorView src, double factor, ByteSpan wire) {
  with_types(type, src, [&](auto half, auto from) {
    using T = std::remove_const_t<typename decltype(from)::element_type>;
    const T by = static_cast<T>(factor);
    const T* in = from.data();
    std::byte* out = wire.data();
    const std::size_t count = from.size();
    for (std::size_t i = 0; i < count; ++i)
      store_le(out, half.round(static_cast<float>(in[i] * by)), i);
  });
}

void from_half(HalfType type, ConstByteSpan wire, double factor, TensorView dst) {
  with_types(type, dst, [&](auto half, auto to) {
    using T = typename decltype(to)::element_type;
    const T by = static_cast<T>(factor);
    const std::byte* in = wire.data();
    T* out = to.data();
    const std::size_t count = to.size();
    for (std::size_t i = 0; i < count; ++i)
      out[i] = static_cast<T>(half.widen(load_le<std::uint16_t>(in, i))) * by;
  });
}

void add_half(HalfType type, ConstByteSpan wire, double factor, TensorView acc) {
  with_types(type, acc, [&](auto half, auto to) {
    using T = typename decltype(to)::element_type;
    const T by = static_cast<T>(factor);
    const std::byte* in = wire.data();
    T* out = to.data();
    const std::size_t count = to.size();
    for (std::size_t i = 0; i < count; ++i)
      out[i] += static_cast<T>(half.widen(load_le<std::uint16_t>(in, i))) * by;
  });
}

void through_half(HalfType type, ConstTensorView src, double factor, double inverse,
                  TensorView dst) {
  with_types(type, dst, [&](auto half, auto to) {
    using T = typename decltype(to)::element_type;
    const T by = static_cast<T>(factor);
    const T back = static_cast<T>(inverse);
    const T* in = elements<T>(src).data();
    T* out = to.data();
    const std::size_t count = to.size();
    for (std::size_t i = 0; i < count; ++i)
      out[i] = static_cast<T>(half.widen(half.round(static_cast<float>(in[i] * by)))) * back;
  });
}

}  // namespace gradwire::cpu
