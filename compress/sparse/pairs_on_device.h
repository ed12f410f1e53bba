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

// kUnsupported, by name, for codings of indices whose length hangs on them (gaps, auto).
Status check_device_coding(const std::string& method, IndexCoding coding);

// Of one tensor of kF32. Not thread-safe.
class PairsOnDevice {
 public:
  // Always `most` of `elems` elements, or (counted) up to so many. `method` names errors.
  // kUnsupported, by name, for codings of indices whose length hangs on them (gaps, auto), and for
  // second stages that have no format on a device.
  static Result<PairsOnDevice> open(std::string method, const SparseOptions& options,
                                    std::size_t most, bool counted, std::int64_t elems,
                                    const Compressor::Placement& where);

  bool exact() const { return format_ == nullptr; }
  // Of a payload of so many pairs.
  std::size_t bytes(std::size_t pairs) const;

  // Where a selection writes its pairs: into a payload of bytes(); values that are coded into
  // `values` first, of value_room() bytes. Of none: nowhere.
  std::size_t value_room(std::size_t pairs) const { return exact() ? 0 : pairs * sizeof(float); }
  PairTarget target(std::size_t pairs, ByteSpan payload, const Scratch& values) const;
  // Enqueues what is left to write: the count, and coded values.
  Status complete(std::size_t pairs, const Scratch& values, std::uint64_t step, ByteSpan payload,
                  const Stream& stream);

  // From all ranks, in their order; lent until finish(). Waits for the stream: kCorruptPayload
  // for a wrong length or contents.
  Status absorb(std::span<const ConstByteSpan> payloads, std::uint64_t step, const Stream& stream);
  // As Coder::finish(), enqueued.
  Status finish(TensorView mean, TensorView own, const Stream& stream);
  void forget();

  // What this rank's own payload came back as: its pairs, whose words begin at 4 bytes if
  // in_words(). Lent until forget() or the next absorb().
  std::size_t own_pairs() const { return own_pairs_; }
  const PairList& own() const { return lists_[static_cast<std::size_t>(where_.rank)]; }
  bool in_words() const { return in_words_; }

 private:
  PairsOnDevice(std::string method, std::unique_ptr<WireFormat> format, Verdict verdict,
                const Compressor::Placement& where)
      : method_(std::move(method)),
        format_(std::move(format)),
        verdict_(std::move(verdict)),
        where_(where) {}

  std::size_t head() const { return counted_ ? sizeof(std::uint32_t) : 0; }
  std::size_t index_bytes(std::size_t pairs) const;
  std::size_t value_bytes(std::size_t pairs) const;
  Result<std::vector<std::size_t>> read_counts(std::span<const ConstByteSpan> payloads,
                                               const Stream& stream);
  Status absorb_one(std::size_t rank, std::size_t pairs, ConstByteSpan payload, std::uint64_t step,
                    const Stream& stream);
  Status read_bitmap(std::size_t pairs, ConstByteSpan bits, std::uint32_t* starts,
                     std::uint32_t* indices, const Stream& stream);
  Status put_sum(std::span<const PairList> lists, float factor, TensorView dst,
                 const Stream& stream) const;
  Status corrupt(Finding finding, std::size_t pairs) const;
  std::uint32_t* starts_of(std::size_t rank) const;
  Slice slice_of(int rank, std::uint64_t step) const { return {step, where_.tensor, rank, 0, 0}; }

  std::string method_;
  std::unique_ptr<WireFormat> format_;  // null: values as they are
  Verdict verdict_;
  Compressor::Placement where_;
  IndexCoding index_ = IndexCoding::kU32;
  std::size_t most_ = 0;
  bool counted_ = false;
  std::int64_t elems_ = 0;
  Buffer counts_;               // pinned: of each rank, and what complete() copies
  Buffer starts_;               // of each rank's tiles, and the end
  std::vector<Scratch> rooms_;  // of each rank, what was decoded: indices of bitmaps, values
  std::vector<PairList> lists_;
  std::size_t own_pairs_ = 0;
  bool in_words_ = true;
  bool absorbed_ = false;
};

}  // namespace gradwire::cuda
