// Payloads of pairs, one from each rank, and their average: what coders of sparse methods share
// that do not agree on the chosen places.
//
//   payload := [count:u32] pairs        pairs as in sparse_coding.h, `count` of them
//
// The count is there where it depends on the data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compress/sparse/sparse_coding.h"
#include "compress/topk/topk_kernels.h"

namespace gradwire {

// T is float or double. Not thread-safe.
template <typename T>
class PairPayloads {
 public:
  static constexpr std::size_t kCountBytes = 4;

  // At most `most` pairs (counted), or always as many, of `elems` elements. `method` names errors.
  static Result<PairPayloads> open(std::string method, const SparseOptions& options,
                                   std::size_t most, bool counted, std::int64_t elems,
                                   const Compressor::Placement& where);

  // Whether values travel as they are, so that what was chosen is what the payload decodes to.
  bool exact() const { return exact_; }
  // Whether the payload is index{k} value{k}, so that a selection may write it itself.
  bool plain() const { return !coding_.has_value() && !counted_; }

  // Writes pairs with strictly ascending indices, at most `most`; returns the bytes written.
  Result<std::size_t> write(std::span<const std::uint32_t> index, std::span<const T> value,
                            std::uint64_t step, ByteSpan payload);

  // From all ranks, in their order; lent until finish(). kCorruptPayload as SparseCoding::decode().
  Status absorb(std::span<const ConstByteSpan> payloads, std::uint64_t step);
  // As Coder::finish().
  Status finish(TensorView mean, TensorView own);
  // What this rank's payload decodes to, after absorb(): places and values.
  ConstByteSpan own_pairs() const { return pairs_[static_cast<std::size_t>(where_.rank)]; }
  void forget() { pairs_.clear(); }

 private:
  PairPayloads() = default;
  static constexpr std::size_t kPairBytes = kTopkIndexBytes + sizeof(T);

  Status absorb_one(std::size_t rank, ConstByteSpan payload, std::uint64_t step);
  // Takes the count off the front of `payload`.
  Result<std::size_t> read_count(ConstByteSpan& payload) const;

  std::string method_;
  std::optional<SparseCoding<T>> coding_;  // none: index{k} value{k}
  bool exact_ = true;
  std::size_t most_ = 0;
  bool counted_ = false;
  std::int64_t elems_ = 0;
  Compressor::Placement where_;
  typename SparseCoding<T>::Pairs decoded_;
  std::vector<std::vector<std::byte>> plain_;  // by rank, with coding_: index{k} value{k}
  std::vector<ConstByteSpan> pairs_;           // by rank: index{k} value{k}, checked
};

}  // namespace gradwire
