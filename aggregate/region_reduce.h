// The first half of oktopk_exchange.cc: pairs of index and value to the owners of their regions,
// who add them up.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

template <typename T>
struct Pair {
  std::uint32_t index;
  T value;
};
// Pairs are sent one after another, unaligned: index:u32 value, little-endian.
static_assert(std::endian::native == std::endian::little, "they are sent as they lie in memory");
template <typename T>
constexpr std::int64_t kPairBytes = sizeof(std::uint32_t) + sizeof(T);

template <typename T>
void put_pair(std::vector<std::byte>& out, const Pair<T>& pair) {
  const std::size_t end = out.size();
  out.resize(end + kPairBytes<T>);
  std::memcpy(out.data() + end, &pair.index, sizeof pair.index);
  std::memcpy(out.data() + end + sizeof pair.index, &pair.value, sizeof(T));
}
// Pair k of bytes that have as many.
template <typename T>
Pair<T> pair_at(ConstByteSpan bytes, std::size_t k) {
  Pair<T> pair;
  std::memcpy(&pair.index, bytes.data() + k * kPairBytes<T>, sizeof pair.index);
  std::memcpy(&pair.value, bytes.data() + k * kPairBytes<T> + sizeof pair.index, sizeof(T));
  return pair;
}

// Lists that lie one behind the other on the ranks, cut anew into almost equal parts where one rank
// holds over twice its part.
struct Balance {
  bool moves = false;
  std::vector<std::int64_t> held;             // by rank, afterwards
  std::vector<std::int64_t> sends, receives;  // of `rank`, by rank: items; 0 unless it moves
};
// held: items of each rank.
Balance balance(std::span<const std::int64_t> held, int rank);

// T is float or double. Calls of a step in this order: choose, issue_quantiles, place,
// issue_counts, take_counts, pack, issue_pairs, add. A Work that is empty is one that no rank
// starts.
template <typename T>
class RegionReduce {
 public:
  RegionReduce(Communicator& communicator, std::int64_t elems);

  // This rank's pairs, strictly ascending and below elems; the memory may be filled again next
  // step.
  std::vector<Pair<T>>& chosen() { return chosen_; }
  void choose(std::uint64_t step);
  Result<std::optional<Work>> issue_quantiles();
  void place();
  // How many pairs go where; `also` is in the same batch.
  Result<Work> issue_counts(const OpCall& also);
  Status take_counts();
  // Returns the bytes written.
  std::size_t pack();
  Result<Work> issue_pairs();
  // kCorruptPayload, naming the rank, for an element outside of the region, or not behind the one
  // before it.
  Status add();

  // Elements of rank r's region.
  Range region(std::size_t r) const { return {regions_[r], regions_[r + 1]}; }
  Range own() const { return region(rank_); }
  // Elements of the own region of which any rank sent something, ascending, and their sums.
  std::span<const Pair<T>> sums() const { return sums_; }
  // Those within `part`.
  std::span<const Pair<T>> sums_of(const Range& part) const;

 private:
  std::int64_t dense_bytes(std::size_t r) const {
    return region(r).size() * static_cast<std::int64_t>(sizeof(T));
  }
  // So many pairs for region r would take more bytes than all its elements, which travel instead.
  bool as_it_is(std::size_t r, std::int64_t pairs) const {
    return pairs * kPairBytes<T> > dense_bytes(r);
  }
  // What rank r sent in `bytes`, or keeps of its own: visit(pair), in order.
  template <typename Visit>
  Status each_pair_from(std::size_t r, ConstByteSpan bytes, Visit visit) const;
  ConstByteSpan take_from(std::size_t r, ConstByteSpan& rest) const;
  Status merge_pairs();
  Status add_in_place();

  Communicator& communicator_;
  std::size_t rank_;
  std::size_t size_;
  std::int64_t elems_;
  std::vector<std::int64_t> regions_;  // size + 1 bounds; empty before the first step
  bool refresh_ = false;               // in this step
  std::vector<Pair<T>> chosen_;
  std::vector<std::int64_t> quantiles_;
  std::vector<std::size_t> first_;       // by region, of chosen_
  std::vector<std::int32_t> to_, from_;  // pairs, by rank
  std::vector<std::int64_t> send_bytes_, receive_bytes_;
  std::vector<std::byte> send_, receive_;
  std::vector<Pair<T>> sums_;
  // Of merge_pairs().
  std::vector<Pair<T>> runs_, merged_;
  std::vector<std::size_t> ends_;
  // Of add_in_place(), by element of the own region.
  std::vector<T> sum_;
  std::vector<bool> touched_;
};
extern template class RegionReduce<float>;
extern template class RegionReduce<double>;

}  // namespace gradwire
