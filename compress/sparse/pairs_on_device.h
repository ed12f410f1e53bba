// Payloads of pairs on a device: compress/sparse/pair_payloads.h for memory that is there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compress/cuda/verdict.h"
#include "compress/sparse/pair_kernels.h"
#include "compress/sparse/sparse_coding.h"
#include "device/cuda/memory.h"
#include "gradwire/buffer.h"

namespace gradwire::cuda {

// Of one tensor of kF32. Not thread-safe.
class PairsOnDevice {
 public:
  // Always `pairs` of `elems` elements. `method` names errors. kUnsupported, by name, for codings
  // of indices whose length hangs on them (gaps, auto), and for second stages that have no format
  // on a device.
  static Result<PairsOnDevice> open(std::string method, const SparseOptions& options,
                                    std::size_t pairs, std::int64_t elems,
                                    const Compressor::Placement& where);

  bool exact() const { return format_ == nullptr; }
  // Of a payload.
  std::size_t bytes() const { return index_bytes_ + value_bytes_; }

  // Where a selection writes its pairs: into a payload of bytes(); values that are coded into
  // `values` first, of value_room() bytes.
  std::size_t value_room() const { return exact() ? 0 : pairs_ * sizeof(float); }
  PairTarget target(ByteSpan payload, const Scratch& values) const;
  // Enqueues coding them, if there is something to do.
  Status code_values(const Scratch& values, std::uint64_t step, ByteSpan payload,
                     const Stream& stream);

  // From all ranks, in their order; lent until finish(). Waits for the stream: kCorruptPayload
  // for a wrong length or contents.
  Status absorb(std::span<const ConstByteSpan> payloads, std::uint64_t step, const Stream& stream);
  // As Coder::finish(), enqueued.
  Status finish(TensorView mean, TensorView own, const Stream& stream);
  void forget() { absorbed_ = false; }

 private:
  PairsOnDevice(std::string method, std::unique_ptr<WireFormat> format, Verdict verdict,
                const Compressor::Placement& where)
      : method_(std::move(method)),
        format_(std::move(format)),
        verdict_(std::move(verdict)),
        where_(where) {}

  Status absorb_one(std::size_t rank, ConstByteSpan payload, std::uint64_t step,
                    const Stream& stream);
  Status read_bitmap(ConstByteSpan bits, std::uint32_t* starts, std::uint32_t* indices,
                     const Stream& stream);
  Status put_sum(std::span<const PairList> lists, float factor, TensorView dst,
                 const Stream& stream) const;
  Status corrupt(Finding finding) const;
  std::uint32_t* starts_of(std::size_t rank) const;

  std::string method_;
  std::unique_ptr<WireFormat> format_;  // null: values as they are
  Verdict verdict_;
  Compressor::Placement where_;
  IndexCoding index_ = IndexCoding::kU32;
  std::size_t pairs_ = 0;
  std::int64_t elems_ = 0;
  std::size_t index_bytes_ = 0;
  std::size_t value_bytes_ = 0;
  Buffer starts_;   // of each rank's tiles, and the end
  Buffer indices_;  // of each rank, of bitmaps
  Buffer values_;   // of each rank, decoded
  std::vector<PairList> lists_;
  bool in_words_ = true;
  bool absorbed_ = false;
};

}  // namespace gradwire::cuda
