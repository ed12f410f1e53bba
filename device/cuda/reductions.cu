#include "base/small_floats.h"
#include "device/combine.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/map_kernel.h"

namespace gradwire::cuda {
namespace {

struct Fp16 {
  static constexpr float widen(std::uint16_t half) { return float_from_fp16(half); }
  static constexpr std::uint16_t round(float value) { return fp16_from_float(value); }
};
struct Bf16 {
  static constexpr float widen(std::uint16_t half) { return float_from_bf16(half); }
  static constexpr std::uint16_t round(float value) { return bf16_from_float(value); }
};

template <class Combine>
struct Combined {
  template <typename T>
  constexpr T operator()(T acc, T src) const {
    return Combine{}(acc, src);
  }
};
template <class Half, class Combine>
struct CombinedHalves {
  constexpr std::uint16_t operator()(std::uint16_t acc, std::uint16_t src) const {
    return Half::round(Combine{}(Half::widen(acc), Half::widen(src)));
  }
};

template <typename T>
struct Constant {
  T value;
  constexpr T operator()(T, T) const { return value; }
};

template <class Combine>
Status reduce_by(ConstTensorView src, TensorView acc, const Stream& stream) {
  const auto plain = [&]<typename T>() {
    return map<T, T>("reduce", src.data(), acc.data(), acc.elems(), Combined<Combine>{}, stream);
  };
  const auto halves = [&]<class Half>() {
    return map<std::uint16_t, std::uint16_t>("reduce", src.data(), acc.data(), acc.elems(),
                                             CombinedHalves<Half, Combine>{}, stream);
  };
  switch (acc.dtype()) {
    case DType::kF64: return plain.template operator()<double>();
    case DType::kF32: return plain.template operator()<float>();
    case DType::kI64: return plain.template operator()<std::int64_t>();
    case DType::kI32: return plain.template operator()<std::int32_t>();
    case DType::kI8: return plain.template operator()<std::int8_t>();
    case DType::kU8: return plain.template operator()<std::uint8_t>();
    case DType::kF16: return halves.template operator()<Fp16>();
    case DType::kBF16: break;
  }
  return halves.template operator()<Bf16>();
}

template <typename T>
Status fill(TensorView tensor, T value, const Stream& stream) {
  return map<T, T>("fill_neutral", tensor.data(), tensor.data(), tensor.elems(), Constant<T>{value},
                   stream);
}

}  // namespace

Status reduce(ReduceOp op, ConstTensorView src, TensorView acc, const Stream& stream) {
  switch (op) {
    case ReduceOp::kMax: return reduce_by<combine::Larger>(src, acc, stream);
    case ReduceOp::kMin: return reduce_by<combine::Smaller>(src, acc, stream);
    case ReduceOp::kProduct: return reduce_by<combine::Multiply>(src, acc, stream);
    default: return reduce_by<combine::Add>(src, acc, stream);
  }
}

Status fill_neutral(ReduceOp op, TensorView tensor, const Stream& stream) {
  switch (tensor.dtype()) {
    case DType::kF64: return fill(tensor, combine::neutral<double>(op), stream);
    case DType::kF32: return fill(tensor, combine::neutral<float>(op), stream);
    case DType::kI64: return fill(tensor, combine::neutral<std::int64_t>(op), stream);
    case DType::kI32: return fill(tensor, combine::neutral<std::int32_t>(op), stream);
    case DType::kI8: return fill(tensor, combine::neutral<std::int8_t>(op), stream);
    case DType::kU8: return fill(tensor, combine::neutral<std::uint8_t>(op), stream);
    case DType::kF16: return fill(tensor, fp16_from_float(combine::neutral<float>(op)), stream);
    case DType::kBF16: break;
  }
  return fill(tensor, bf16_from_float(combine::neutral<float>(op)), stream);
}

}  // namespace gradwire::cuda
