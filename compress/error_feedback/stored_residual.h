// A residual at rest, in fewer bytes than it is computed with.
//
//   full   the element itself
//   bf16   the element as bfloat16
//   int8   blocks of 256 elements: s = max |x| / 127 as f32, and one code an element, x = code s
//
// bf16 and int8 round stochastically: up with a probability equal to the fraction, so that what
// storing changes has mean zero and does not pile up in one direction. One store moves an element
// by a draw of standard deviation at most half a step: 2^-8 |x| (bf16), max |x| / 254 over the
// block (int8). Draws hang on (seed, tensor, rank, step, element) alone, so that a resumed run
// stores the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compress/error_feedback/feedback.h"
#include "gradwire/compressor.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Entries of state(): the elements, and for int8 the blocks' scales.
inline constexpr std::string_view kResidualState = "error";
inline constexpr std::string_view kResidualScales = "error.scale";
inline constexpr std::size_t kResidualBlock = 256;

// T is float or double.
template <typename T>
class StoredResidual {
 public:
  // Zeros. `stage` keeps the draws of several residuals of one tensor apart.
  StoredResidual(const Shape& shape, ResidualStorage storage, const Compressor::Placement& where,
                 int stage);

  std::size_t size() const { return count_; }
  // out[i] = the elements from `first` on.
  void load(std::size_t first, std::span<T> out) const;
  // Replaces all elements by finite `values`. kInvalidArgument, and nothing has changed, when a
  // block's scale is beyond f32 (f64 gradients alone).
  Status store(std::span<const T> values, std::uint64_t step);
  // "error", the opened shape in kF32, kF64, kBF16 or kI8, and of int8 "error.scale". Views stay
  // valid with the object.
  std::vector<NamedTensor> state();

 private:
  void store_bf16(std::span<const T> values, std::uint64_t step);
  void store_int8(std::span<const T> values, std::uint64_t step);

  Shape shape_;
  ResidualStorage storage_;
  std::size_t count_;
  Compressor::Placement where_;
  int stage_;
  std::vector<T> full_;
  std::vector<std::uint16_t> halves_;
  std::vector<std::int8_t> codes_;
  std::vector<float> scales_;
};
extern template class StoredResidual<float>;
extern template class StoredResidual<double>;

// One element of a state() entry; `scales` is needed for kI8 alone. kF32, kF64, kBF16, kI8.
double stored_value(ConstTensorView elements, ConstTensorView scales, std::size_t i);
// Replaces all elements, rounded to nearest. Finite values.
void put_stored_values(std::span<const double> values, TensorView elements, TensorView scales);

}  // namespace gradwire
