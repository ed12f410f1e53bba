// Elements at places that all ranks know, on a device: compress/sparse/shared_choice.h for memory
// that is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "compress/cuda/slices.h"
#include "compress/cuda/verdict.h"
#include "gradwire/buffer.h"
#include "gradwire/coder.h"

namespace gradwire::cuda {

// Of one tensor of kF32. Not thread-safe.
class ChoiceOnDevice {
 public:
  // `inner` is open for k elements on `device`; `factor` is multiplied into every value that is
  // sent. Between steps an eighth of a byte an element and 12 bytes for each of k are kept.
  static Result<ChoiceOnDevice> open(std::string method, std::size_t k, std::int64_t elems,
                                     float factor, std::unique_ptr<Coder> inner, Device device);

  std::size_t k() const { return k_; }

  // Places: clear() enqueues that none is chosen. Then their bits are set, bit i % 32 of word i /
  // 32 of bits(), and count() enqueues what encode() and finish() want of them. Into `verdict`,
  // which was cleared: that there are others than k, or one behind the last element (PairFinding).
  std::uint32_t* bits() const { return reinterpret_cast<std::uint32_t*>(bitmap_.bytes().data()); }
  Status clear(const Stream& stream);
  Status count(std::uint64_t* verdict, const Stream& stream);

  // Picks the values and packs them. Waits for the stream: kInvalidArgument when an element of the
  // tensor, chosen or not, is not finite.
  Result<std::size_t> encode(const Source& source, std::uint64_t step, ByteSpan payload,
                             const Stream& stream);
  Status absorb(std::span<const ConstByteSpan> payloads, const Stream& stream) {
    return inner_->absorb(0, payloads, stream);
  }
  // As Coder::finish(); the tensors are checked.
  Status finish(TensorView mean, TensorView own, const Stream& stream);

 private:
  ChoiceOnDevice(std::string method, std::size_t k, std::int64_t elems, float factor,
                 std::unique_ptr<Coder> inner, Device device, Verdict verdict)
      : method_(std::move(method)),
        k_(k),
        elems_(elems),
        factor_(factor),
        inner_(std::move(inner)),
        device_(device),
        verdict_(std::move(verdict)) {}

  TensorView values(const Buffer& of) const;
  std::uint32_t* starts() const { return reinterpret_cast<std::uint32_t*>(starts_.bytes().data()); }
  Status spread(const Buffer& from, TensorView dst, const Stream& stream) const;

  std::string method_;
  std::size_t k_;
  std::int64_t elems_;
  float factor_;
  std::unique_ptr<Coder> inner_;
  Device device_;
  Verdict verdict_;
  Buffer bitmap_;  // a bit an element, whole tiles
  Buffer starts_;  // of the tiles, and the end
  Buffer picked_;  // k elements each
  Buffer mean_;
  Buffer own_;
};

}  // namespace gradwire::cuda
