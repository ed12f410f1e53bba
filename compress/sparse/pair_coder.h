// What coders have in common that send pairs of their own choice: all but choosing and writing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "compress/contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/sparse/pair_payloads.h"

namespace gradwire {

// One round. A method's class adds encode(), which calls its own check_round(). T is float or
// double. Not thread-safe.
template <typename T>
class PairCoder : public PlacedCoder {
 public:
  // Coded values are not what was chosen: their rest is known after decoding them.
  bool takes_feedback() const override { return payloads_.exact(); }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round(method_, round, 1));
    return payloads_.absorb(payloads, step_);
  }
  Status finish(TensorView mean, TensorView own, const Stream&) override {
    return payloads_.finish(mean, own);
  }

 protected:
  // `method` names errors.
  PairCoder(std::string method, std::int64_t elems, DType dtype, PairPayloads<T> payloads)
      : PlacedCoder(std::move(method), elems, Device{}, dtype), payloads_(std::move(payloads)) {}

  PairPayloads<T> payloads_;

 private:
  void forget() final { payloads_.forget(); }
};

}  // namespace gradwire
