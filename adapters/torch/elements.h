// Tensors of any kind as the contiguous elements that gradwire moves and reduces.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "gradwire/c.h"

namespace gradwire::torch_backend {

// What elements of a type move as: their own type, or bytes.
struct Moved {
  gw_dtype dtype;
  std::int64_t per_element;  // gradwire's elements in one of the tensor's
};
Moved moved(at::ScalarType type);

// What a reduction of a type runs as. Truth values as bytes, where a sum is "any" and a product
// "all"; 16-bit integers in 32 bits; complex numbers as pairs.
struct Reduced {
  gw_dtype dtype;
  gw_reduction op;
  at::ScalarType held_as;    // the type to convert to first
  std::int64_t per_element;  // 2 for complex numbers
  double factor;             // of GW_PRE_MUL_SUM
};
// ValueError names a type or an operation that has no meaning for it.
Reduced reduced(at::ScalarType type, const c10d::ReduceOp& op);

// Tensors that are lent to an operation, and what to copy where after it.
struct Lent {
  std::vector<at::Tensor> kept;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from

  // The elements of `tensor` without gaps, as `type`.
  at::Tensor input(const at::Tensor& tensor, at::ScalarType type);
  // The same, which the operation fills (and reads, if `read`); other memory than the tensor's own
  // is copied back.
  at::Tensor output(const at::Tensor& tensor, at::ScalarType type, bool read);
  // One stretch of memory whose parts are the tensors in their order: where they lie, if they lie
  // so, else new.
  at::Tensor flat_input(const std::vector<at::Tensor>& tensors, at::ScalarType type);
  at::Tensor flat_output(const std::vector<at::Tensor>& tensors, at::ScalarType type);
};

// Strided elements in host memory or on a device whose streams are CUDA's, else a ValueError that
// names what was seen. (Whether gradwire serves the device is the library's to say.)
void check_tensor(const at::Tensor& tensor, const char* operation);

}  // namespace gradwire::torch_backend
