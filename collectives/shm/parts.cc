// Reduce-scatter in shared memory of a tensor in unequal parts, call.lengths long, one for each
// rank: rank r folds part r of all tensors, a left fold in rank order, straight into out, which may
// be that part of in. N bytes in all: part r is read once from each rank, N - part r leave a rank.
#include <algorithm>
#include <array>
#include <span>

#include "collectives/shm/moves.h"

namespace gradwire {
namespace {

using Sources = std::array<const std::byte*, ShmChannel::kMostRanks>;

std::size_t place_of(int q) { return static_cast<std::size_t>(q); }

class ReduceParts final : public ShmMoves {
 public:
  std::size_t in_bytes(const ShmCall& call, int) const override {
    return static_cast<std::size_t>(call.elems) * size_of(call.dtype);
  }
  // Nobody else looks at it.
  std::size_t out_bytes(const ShmCall&, int) const override { return 0; }
  std::size_t small_bytes(const ShmCall& call, int size) const override {
    return in_bytes(call, size);
  }
  void put_small(const ShmPlace& place, std::byte* own) const override {
    copy_with(Stores::kCached, own, place.call.in, in_bytes(place.call, place.size()));
  }
  void take_small(const ShmPlace& place) const override {
    const Range own = part(place, place.rank());
    Sources sources;
    for (int q = 0; q < place.size(); ++q) {
      sources[place_of(q)] = place.small(q) + place.bytes(own.begin);
    }
    fold_into(place, sources, place.call.out, own.size());
  }

  bool are_shared(const ShmPlace& place) const override {
    for (int q = 0; q < place.size(); ++q) {
      if (!place.shares_in(q)) return false;
    }
    return true;
  }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    return parts_of(part(place, place.rank()).size(), direct_elems(place));
  }
  void direct(const ShmPlace& place, std::int64_t at) const override {
    const Range own = part(place, place.rank());
    const Range range = part_of(own.size(), direct_elems(place), at);
    Sources sources;
    for (int q = 0; q < place.size(); ++q) {
      sources[place_of(q)] = place.in_of(q) + place.bytes(own.begin + range.begin);
    }
    fold_into(place, sources, place.call.out + place.bytes(range.begin), range.size());
  }

  // A slot holds the same stretch of every part.
  std::int64_t slot_parts(const ShmPlace& place) const override {
    return parts_of(std::ranges::max(place.call.lengths), slot_elems(place));
  }
  void put(const ShmPlace& place, std::int64_t at) const override {
    for (int k = 1; k < place.size(); ++k) {
      const int q = (place.rank() + k) % place.size();
      const Range theirs = part(place, q);
      const Range range = part_of(theirs.size(), slot_elems(place), at);
      if (range.size() <= 0) continue;
      copy_with(Stores::kCached, place.slot(place.rank(), at) + row_at(place, q),
                place.call.in + place.bytes(theirs.begin + range.begin), place.bytes(range.size()));
    }
  }
  void take(const ShmPlace& place, std::int64_t at) const override {
    const int r = place.rank();
    const Range own = part(place, r);
    const Range range = part_of(own.size(), slot_elems(place), at);
    if (range.size() <= 0) return;
    Sources sources;
    for (int q = 0; q < place.size(); ++q) {
      sources[place_of(q)] = q == r ? place.call.in + place.bytes(own.begin + range.begin)
                                    : place.slot(q, at) + row_at(place, r);
    }
    fold_into(place, sources, place.call.out + place.bytes(range.begin), range.size());
  }

  std::uint64_t sent(const ShmPlace& place, bool) const override {
    return place.bytes(place.call.elems - part(place, place.rank()).size());
  }

 private:
  static Range part(const ShmPlace& place, int q) {
    std::int64_t begin = 0;
    for (int i = 0; i < q; ++i) begin += place.call.lengths[place_of(i)];
    return {begin, begin + place.call.lengths[place_of(q)]};
  }
  static void fold_into(const ShmPlace& place, const Sources& sources, std::byte* target,
                        std::int64_t elems) {
    if (elems == 0) return;
    fold(place.call.op, place.call.dtype, std::span(sources.data(), place_of(place.size())),
         std::span(&target, 1), elems, Stores::kCached);
  }
  static std::int64_t direct_elems(const ShmPlace& place) {
    return static_cast<std::int64_t>(kDirectBytes / place.width());
  }
  static std::size_t slot_row(const ShmPlace& place) {
    return ShmChannel::kSlotBytes / place_of(place.size()) / 64 * 64;
  }
  static std::int64_t slot_elems(const ShmPlace& place) {
    return static_cast<std::int64_t>(slot_row(place) / place.width());
  }
  static std::size_t row_at(const ShmPlace& place, int q) { return slot_row(place) * place_of(q); }
};

}  // namespace

const ShmMoves& shm_reduce_parts() {
  static const ReduceParts moves;
  return moves;
}

}  // namespace gradwire
