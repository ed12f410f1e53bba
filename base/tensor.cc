#include "gradwire/tensor.h"

#include "base/text.h"

namespace gradwire {

std::string_view to_string(DType type) {
  switch (type) {
    case DType::kF64: return "f64";
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kI64: return "i64";
    case DType::kI32: return "i32";
    case DType::kI8: return "i8";
    case DType::kU8: return "u8";
  }
  return "?";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMean: return "mean";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kProduct: return "product";
    case ReduceOp::kPreMulSum: return "pre_mul_sum";
  }
  return "?";
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.rank; ++i) {
    text += format(i == 0 ? "%lld" : ", %lld",
                   static_cast<long long>(shape.dim[static_cast<std::size_t>(i)]));
  }
  return text + ")";
}

}  // namespace gradwire
