// compress/sparse/pair_coder.h on a device: all but choosing and writing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "compress/contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/sparse/pairs_on_device.h"

namespace gradwire::cuda {

// One round, kF32. A method's class adds encode(), which calls its own check_round(). Not
// thread-safe.
class PairDeviceCoder : public PlacedCoder {
 public:
  bool takes_feedback() const override { return payloads_.exact(); }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_round(method_, round, 1));
    return payloads_.absorb(payloads, step_, stream);
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    return payloads_.finish(mean, own, stream);
  }

 protected:
  // `method` names errors.
  PairDeviceCoder(std::string method, std::int64_t elems, Device device, PairsOnDevice payloads)
      : PlacedCoder(std::move(method), elems, device, DType::kF32),
        payloads_(std::move(payloads)) {}

  // What begin() was given.
  Source source() const { return source_of(grad_, feedback_); }

  PairsOnDevice payloads_;

 private:
  void forget() final { payloads_.forget(); }
};

}  // namespace gradwire::cuda
