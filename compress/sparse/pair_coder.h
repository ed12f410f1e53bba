// What coders have in common that send pairs of their own choice: all but choosing and writing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compress/contract.h"
#include "compress/sparse/pair_payloads.h"

namespace gradwire {

// One round. A method's class adds encode(), which calls its own check_round(). T is float or
// double. Not thread-safe.
template <typename T>
class PairCoder : public Coder {
 public:
  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    GW_TRY(check_tensor(method_ + ": grad", grad, elems_, dtype_));
    grad_ = grad;
    step_ = step;
    feedback_.reset();
    payloads_.forget();
    return {};
  }
  // Coded values are not what was chosen: their rest is known after decoding them.
  bool takes_feedback() const override { return payloads_.exact(); }
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step,
                             const Stream& stream) override {
    GW_TRY(check_feedback(method_, grad, feedback, dtype_));
    GW_TRY(begin(grad, step, stream));
    feedback_ = feedback;
    return {};
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round(method_, round, 1));
    return payloads_.absorb(payloads, step_);
  }
  Status finish(TensorView mean, TensorView own, const Stream&) override {
    return payloads_.finish(mean, own);
  }
  std::vector<NamedTensor> state() override { return {}; }

 protected:
  // `method` names errors.
  PairCoder(std::string method, std::int64_t elems, DType dtype, PairPayloads<T> payloads)
      : method_(std::move(method)), elems_(elems), dtype_(dtype), payloads_(std::move(payloads)) {}

  std::string method_;
  std::int64_t elems_;
  DType dtype_;
  PairPayloads<T> payloads_;
  ConstTensorView grad_ = {};
  std::uint64_t step_ = 0;
  std::optional<Feedback> feedback_ = {};
};

}  // namespace gradwire
