#include "adapters/torch/elements.h"

#include "adapters/torch/failure.h"

namespace gradwire::torch_backend {

namespace {

bool direct(at::ScalarType type, gw_dtype* dtype) {
  switch (type) {
    case at::kDouble: *dtype = GW_F64; return true;
    case at::kFloat: *dtype = GW_F32; return true;
    case at::kHalf: *dtype = GW_F16; return true;
    case at::kBFloat16: *dtype = GW_BF16; return true;
    case at::kLong: *dtype = GW_I64; return true;
    case at::kInt: *dtype = GW_I32; return true;
    case at::kChar: *dtype = GW_I8; return true;
    case at::kByte: *dtype = GW_U8; return true;
    default: return false;
  }
}

gw_reduction reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return GW_SUM;
    case c10d::ReduceOp::AVG: return GW_MEAN;
    case c10d::ReduceOp::PRODUCT: return GW_PRODUCT;
    case c10d::ReduceOp::MIN: return GW_MIN;
    case c10d::ReduceOp::MAX: return GW_MAX;
    case c10d::ReduceOp::BAND: return GW_BIT_AND;
    case c10d::ReduceOp::BOR: return GW_BIT_OR;
    case c10d::ReduceOp::BXOR: return GW_BIT_XOR;
    case c10d::ReduceOp::PREMUL_SUM: return GW_PRE_MUL_SUM;
    default:
      TORCH_CHECK_VALUE(
          false, "gradwire: reduction ", static_cast<int>(op.op_),
          " is none (expected SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR or PREMUL_SUM)");
  }
}

double factor_of(const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM || !op.supplement_) return 1.0;
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) return 1.0;
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                             : supplement->double_factor;
}

bool is_bitwise(gw_reduction op) { return op >= GW_BIT_AND; }

Reduced reduced_truth(gw_reduction op) {
  if (op == GW_SUM) op = GW_MAX;
  if (op == GW_PRODUCT) op = GW_MIN;
  TORCH_CHECK_VALUE(op != GW_MEAN && op != GW_PRE_MUL_SUM,
                    "gradwire: booleans have no mean (SUM means any, PRODUCT all)");
  return {GW_U8, op, at::kBool, 1, 1.0};
}

// The stretch of memory that holds all tensors one after another, or an undefined tensor.
at::Tensor as_one(const std::vector<at::Tensor>& tensors, at::ScalarType type) {
  std::int64_t elements = 0;
  const char* next = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_contiguous() || tensor.scalar_type() != type || tensor.is_conj()) return {};
    const char* here = static_cast<const char*>(tensor.data_ptr());
    if (next != nullptr && here != next) return {};
    if (!tensor.is_alias_of(tensors.front())) return {};
    next = here + tensor.nbytes();
    elements += tensor.numel();
  }
  const at::Tensor& first = tensors.front();
  return first.as_strided({elements}, {1}, first.storage_offset());
}

// New memory for all of them together, and each with its part of that, in its shape.
struct Parts {
  at::Tensor flat;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
};
Parts parts_for(const std::vector<at::Tensor>& tensors, at::ScalarType type) {
  std::int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  Parts parts{at::empty({elements}, tensors.front().options().dtype(type)), {}};
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor part = parts.flat.narrow(0, begin, tensor.numel()).view(tensor.sizes());
    parts.pairs.emplace_back(tensor.detach(), part);
    begin += tensor.numel();
  }
  return parts;
}

}  // namespace

Moved moved(at::ScalarType type) {
  gw_dtype dtype = GW_U8;
  if (direct(type, &dtype)) return {dtype, 1};
  return {GW_U8, static_cast<std::int64_t>(c10::elementSize(type))};
}

Reduced reduced(at::ScalarType type, const c10d::ReduceOp& op) {
  const gw_reduction reduction = reduction_of(op);
  if (type == at::kBool) return reduced_truth(reduction);
  Reduced result{GW_F32, reduction, type, 1, factor_of(op)};
  if (at::isComplexType(type)) {
    TORCH_CHECK_VALUE(reduction == GW_SUM || reduction == GW_MEAN || reduction == GW_PRE_MUL_SUM,
                      "gradwire: complex numbers are only summed and averaged (got ", type, ")");
    result.dtype = type == at::kComplexDouble  ? GW_F64
                   : type == at::kComplexFloat ? GW_F32
                                               : GW_F16;
    result.per_element = 2;
    return result;
  }
  if (type == at::kShort) result.held_as = at::kInt;
  TORCH_CHECK_VALUE(direct(result.held_as, &result.dtype), "gradwire: elements of type ", type,
                    " are not reduced (expected float, double, half, bfloat16, bool or 8- to "
                    "64-bit signed integers)");
  const bool integer = at::isIntegralType(type, /*includeBool=*/false);
  TORCH_CHECK_VALUE(!integer || (reduction != GW_MEAN && reduction != GW_PRE_MUL_SUM),
                    "gradwire: integers have no AVG or PREMUL_SUM (got ", type, ")");
  TORCH_CHECK_VALUE(integer || !is_bitwise(reduction),
                    "gradwire: BAND, BOR and BXOR need integers (got ", type, ")");
  return result;
}

at::Tensor Lent::input(const at::Tensor& tensor, at::ScalarType type) {
  at::Tensor held = tensor.detach().resolve_conj().to(type).contiguous();
  kept.push_back(held);
  return held;
}

at::Tensor Lent::output(const at::Tensor& tensor, at::ScalarType type, bool read) {
  const at::Tensor own = tensor.detach();
  at::Tensor held;
  if (own.is_contiguous() && own.scalar_type() == type && !own.is_conj()) {
    held = own;
  } else if (read) {
    held = own.resolve_conj().to(type).contiguous();
  } else {
    held = at::empty(own.sizes(), own.options().dtype(type));
  }
  if (!held.is_same(own)) copies.emplace_back(own, held);
  kept.push_back(held);
  return held;
}

at::Tensor Lent::flat_input(const std::vector<at::Tensor>& tensors, at::ScalarType type) {
  at::Tensor flat = as_one(tensors, type);
  if (!flat.defined()) {
    const Parts parts = parts_for(tensors, type);
    for (const auto& [tensor, part] : parts.pairs) part.copy_(tensor);
    flat = parts.flat;
  }
  kept.push_back(flat);
  return flat;
}

at::Tensor Lent::flat_output(const std::vector<at::Tensor>& tensors, at::ScalarType type) {
  at::Tensor flat = as_one(tensors, type);
  if (!flat.defined()) {
    const Parts parts = parts_for(tensors, type);
    copies.insert(copies.end(), parts.pairs.begin(), parts.pairs.end());
    flat = parts.flat;
  }
  kept.push_back(flat);
  return flat;
}

void check_tensor(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK_VALUE(tensor.defined(), "gradwire: ", operation, ": a tensor is undefined");
  const at::Device device = tensor.device();
  TORCH_CHECK_VALUE(device.is_cpu() || device.is_cuda() || device.is_privateuseone(),
                    "gradwire: ", operation, ": a tensor lies on ", device,
                    " (expected cpu or cuda)");
  TORCH_CHECK_VALUE(tensor.layout() == c10::kStrided, "gradwire: ", operation,
                    ": a tensor of layout ", tensor.layout(), " (expected strided)");
}

}  // namespace gradwire::torch_backend
