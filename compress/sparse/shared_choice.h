// Elements at places that all ranks know: they travel as a vector of k elements of their own, under
// another method's coder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compress/sparse/pick_kernels.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"
#include "gradwire/status.h"

namespace gradwire {

// How the values travel: as they are and summed, or coded by a second stage and gathered.
class ChosenValues {
 public:
  // `values`: the second stage, elementwise; null: as they are.
  explicit ChosenValues(std::shared_ptr<const Compressor> values) : second_(std::move(values)) {}

  bool exact() const { return second_ == nullptr; }
  RoundKind round_kind(DType dtype) const;
  std::size_t bytes(std::size_t k, DType dtype) const;
  Result<std::unique_ptr<Coder>> open(std::size_t k, const Compressor::Placement& where) const;

 private:
  std::shared_ptr<const Compressor> second_;
};

// One tensor on one rank. T is float or double. Not thread-safe.
template <typename T>
class SharedChoice {
 public:
  // `inner` is open for k elements; `factor` is multiplied into every value that is sent.
  SharedChoice(std::string method, std::unique_ptr<Coder> inner, std::size_t k, const Shape& shape,
               const Compressor::Placement& where, T factor = 1)
      : method_(std::move(method)),
        inner_(std::move(inner)),
        shape_(shape),
        where_(where),
        factor_(factor),
        index_(k),
        picked_(k),
        mean_(k),
        own_(k) {}

  // As Coder::begin() and begin_with_feedback(), which only exact values can offer.
  Status begin(ConstTensorView grad, std::uint64_t step);
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step);

  // Where the places go, ascending, before encode().
  std::span<std::uint32_t> places() { return index_; }
  Corrected<T> corrected() const;
  std::uint64_t step() const { return step_; }

  // Picks the values and packs them. kInvalidArgument when an element of the tensor, chosen or not,
  // is not finite.
  Result<std::size_t> encode(ByteSpan payload, const Stream& stream);
  Status absorb(std::span<const ConstByteSpan> payloads, const Stream& stream) {
    return inner_->absorb(0, payloads, stream);
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream);

 private:
  Status not_finite() const;

  std::string method_;
  std::unique_ptr<Coder> inner_;
  Shape shape_;
  Compressor::Placement where_;
  T factor_;
  ConstTensorView grad_;
  std::uint64_t step_ = 0;
  std::optional<Feedback> feedback_;
  std::vector<std::uint32_t> index_;
  std::vector<T> picked_;  // lent to inner_
  std::vector<T> mean_;    // of k elements
  std::vector<T> own_;
};

}  // namespace gradwire
