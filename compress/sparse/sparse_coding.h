// The payload that sparse methods share: where the chosen elements stand and what they are.
//
//   pairs   := indices values
//   indices := as compress/sparse/index_coding.h, of k out of n elements
//   values  := element{k}, or what the second stage's WireFormat packs of k elements as the slice
//              {step, tensor, rank, stage 0, first 0}
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compress/sparse/index_coding.h"
#include "compress/spec_reader.h"
#include "gradwire/compressor.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// How a sparse method's pairs travel.
struct SparseOptions {
  IndexCoding index = IndexCoding::kU32;
  std::shared_ptr<const Compressor> values = nullptr;  // the second stage; null: as they are

  bool plain() const { return index == IndexCoding::kU32 && values == nullptr; }
};

// The key `index` of a sparse method and its value.
SpecKey index_key();
Result<IndexCoding> read_index_key(const SpecReader& reader);
// What a canonical spec ends with: ",index=gaps", "|cast:type=bf16"; nothing for plain ones. The
// stage before must have a key.
std::string spec_end(const SparseOptions& options);

// The bytes that k values of `dtype` take, which fewer never exceed.
std::size_t sparse_value_bytes(const SparseOptions& options, std::size_t k, DType dtype);
// The most bytes of k pairs out of n elements of `dtype`.
std::size_t most_pair_bytes(const SparseOptions& options, std::size_t k, std::size_t n,
                            DType dtype);

// The most bytes of any number up to `most` of pairs.
std::size_t most_pair_bytes_up_to(const SparseOptions& options, std::size_t most, std::size_t n,
                                  DType dtype);

// The claim of a method that chooses k values as `first` says, when the second stage codes them.
// Choosing leaves an error at right angles to what it chose, so the two errors add up:
//   contraction d1, then contraction d2   contraction d1 d2
//   contraction d1, then omega < 1        contraction d1 (1 - omega)
//   contraction d1, then omega >= 1       contraction d1 / (1 + omega) of the scaled values
//   omega1, then omega2                   (1 + omega1) (1 + omega2) - 1
ErrorBound bound_with_values(const ErrorBound& first, const SparseOptions& options, std::size_t k);

// Pairs of one tensor on one rank. T is float or double. Not thread-safe.
template <typename T>
class SparseCoding {
 public:
  struct Pairs {
    std::vector<std::uint32_t> index;
    std::vector<T> value;
  };

  // For at most `most` pairs out of `elems` elements.
  static Result<SparseCoding> open(const SparseOptions& options, std::size_t most,
                                   std::int64_t elems, const Compressor::Placement& where);

  // Writes pairs with strictly ascending indices into `payload`; returns the bytes written.
  // kInvalidArgument when there is no room.
  Result<std::size_t> encode(std::span<const std::uint32_t> index, std::span<const T> value,
                             std::uint64_t step, ByteSpan payload);
  // Reads exactly k pairs that `rank` wrote. kCorruptPayload on a wrong length or contents; `pairs`
  // is then unspecified. k must not come from the network unchecked: memory for it is taken.
  Status decode(ConstByteSpan payload, std::size_t k, int rank, std::uint64_t step, Pairs& pairs);

 private:
  SparseCoding(IndexCoding coding, std::size_t elems, std::unique_ptr<WireFormat> format,
               const Compressor::Placement& where)
      : coding_(coding), elems_(elems), format_(std::move(format)), where_(where) {}
  Slice slice(int rank, std::uint64_t step) const { return {step, where_.tensor, rank, 0, 0}; }

  IndexCoding coding_;
  std::size_t elems_;
  std::unique_ptr<WireFormat> format_;  // null: values as they are
  Compressor::Placement where_;
};

}  // namespace gradwire
