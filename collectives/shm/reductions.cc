// Sums in shared memory, as a left fold in rank order.
//
// all_reduce of N bytes:
//   small   everybody folds everything: one wait, (p - 1) N bytes read of others
//   direct  rank r folds piece r of all tensors and writes it into all of them: two waits; N read
//           and N written by each rank, which is one pass over the memory for all together
//   slots   rank r puts all pieces but its own into its slot, folds piece r of all slots back into
//           them and into its own tensor, and takes the others' pieces from its own slot: per rank
//           2 N (p - 1) / p bytes copied beside the N folded. So a line of a slot goes to the rank
//           that folds it and back, each time to be written next, and no store has to ask for it
// reduce of N bytes goes the same ways, but that the folded pieces are root's alone.
// reduce_scatter(_v): row r is folded from the others' memory, straight into out, which may be that
// row of in.
// exclusive_scan of N bytes: rank r folds what ranks 0 .. r - 1 have, in their order, which reads
// (p - 1) N / 2 bytes a rank on average; nobody waits for anybody else's result.
#include <algorithm>
#include <array>
#include <span>

#include "collectives/schedules/line_piece.h"
#include "collectives/shm/moves.h"
#include "device/ops.h"

namespace gradwire {
namespace {

// At one element of each rank's tensors, by rank.
using Targets = std::array<std::byte*, ShmChannel::kMostRanks>;

// The left fold of source_of(q) of the first `count` ranks, into the first `targets`.
template <typename Source>
void fold_from(const ShmPlace& place, int count, const Source& source_of, const Targets& to,
               int targets, std::int64_t elems, Stores stores) {
  if (elems <= 0) return;
  std::array<const std::byte*, ShmChannel::kMostRanks> sources;
  for (int q = 0; q < count; ++q) sources[static_cast<std::size_t>(q)] = source_of(q);
  fold(place.call.op, place.call.dtype, std::span(sources.data(), static_cast<std::size_t>(count)),
       std::span(to.data(), static_cast<std::size_t>(targets)), elems, stores);
}

std::int64_t direct_part_elems(const ShmPlace& place) { return place.elems_in(kDirectBytes); }

// all_reduce, and reduce, whose root alone has the result.
class AllReduce final : public ShmMoves {
 public:
  std::size_t in_bytes(const ShmCall& call, int) const override {
    return static_cast<std::size_t>(call.elems) * size_of(call.dtype);
  }
  std::size_t out_bytes(const ShmCall& call, int size) const override {
    return in_bytes(call, size);
  }
  // Folding everything on every rank pays while reading it costs less than a second wait.
  std::size_t small_limit(int size, ShmReach before) const override {
    constexpr std::size_t kTogether = 16 << 10;
    constexpr std::size_t kDirectFrom = 2 << 10;
    const std::size_t each = kTogether / static_cast<std::size_t>(size);
    return before == ShmReach::kShared ? std::min(kDirectFrom, each) : each;
  }
  Awaited awaited(const ShmCall& call) const override {
    return call.kind == OpKind::kReduce ? Awaited::kByRoot : Awaited::kAll;
  }
  void take_small(const ShmPlace& place) const override {
    if (!has_result(place, place.rank())) return;
    fold_from(
        place, place.size(), [&](int q) { return place.small(q); }, {place.call.out}, 1,
        place.call.elems, Stores::kCached);
  }

  bool are_shared(const ShmPlace& place) const override {
    for (int q = 0; q < place.size(); ++q) {
      if (has_result(place, q) && !place.shares_out(q)) return false;
    }
    return place.all_share_in();
  }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    return parts_of(own_piece(place).size(), direct_part_elems(place));
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    const Range own = own_piece(place);
    const Range range = part_of(own.size(), direct_part_elems(place), part);
    const std::size_t at = place.bytes(own.begin + range.begin);
    // In place the lines are in the cache already: streaming would have to throw them out first,
    // and takes twice as long.
    const bool cached = rooted(place) || place.call.in == place.call.out;
    fold_pieces(
        place, [&](int q) { return place.in_of(q) + at; },
        [&](int q) { return place.out_of(q) + at; }, range.size(),
        cached ? Stores::kCached : stores_for(place.bytes(place.call.elems)));
  }

  std::int64_t slot_parts(const ShmPlace& place) const override {
    return parts_of(place.call.elems, slot_elems(place));
  }
  void put(const ShmPlace& place, std::int64_t part) const override {
    const Range range = part_of(place.call.elems, slot_elems(place), part);
    const Range own = piece_in(place, range, place.rank());
    std::byte* slot = place.slot(place.rank(), part);
    const std::byte* in = place.call.in + place.bytes(range.begin);
    copy_with(Stores::kCached, slot, in, place.bytes(own.begin));
    const std::size_t after = place.bytes(own.end);
    copy_with(Stores::kCached, slot + after, in + after, place.bytes(range.size()) - after);
  }
  bool combines() const override { return true; }
  void combine(const ShmPlace& place, std::int64_t part) const override {
    const Range range = part_of(place.call.elems, slot_elems(place), part);
    const Range own = piece_in(place, range, place.rank());
    const std::size_t at = place.bytes(own.begin);
    const std::size_t offset = place.bytes(range.begin) + at;
    const auto slot_of = [&](int q) { return place.slot(q, part) + at; };
    fold_pieces(
        place,
        [&](int q) -> const std::byte* {
          return q == place.rank() ? place.call.in + offset : slot_of(q);
        },
        [&](int q) { return q == place.rank() ? place.call.out + offset : slot_of(q); }, own.size(),
        Stores::kCached);
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
    if (!has_result(place, place.rank())) return;
    const Range range = part_of(place.call.elems, slot_elems(place), part);
    std::byte* out = place.call.out + place.bytes(range.begin);
    for (int k = 1; k < place.size(); ++k) {
      const int q = (place.rank() + k) % place.size();
      const Range theirs = piece_in(place, range, q);
      const std::size_t at = place.bytes(theirs.begin);
      copy_and_own(out + at, place.slot(place.rank(), part) + at, place.bytes(theirs.size()));
    }
  }

  std::uint64_t sent(const ShmPlace& place, bool small) const override {
    const std::uint64_t all = place.bytes(place.call.elems);
    const std::uint64_t own = place.bytes(own_piece(place).size());
    // To those that have the result but this one.
    const auto others =
        static_cast<std::uint64_t>(rooted(place) ? (place.is_root() ? 0 : 1) : place.size() - 1);
    return small ? others * all : all - own + others * own;
  }

 private:
  static bool rooted(const ShmPlace& place) { return place.call.kind == OpKind::kReduce; }
  static bool has_result(const ShmPlace& place, int q) {
    return !rooted(place) || q == place.call.root;
  }
  template <typename Source, typename Target>
  static void fold_pieces(const ShmPlace& place, const Source& source_of, const Target& target_of,
                          std::int64_t elems, Stores stores) {
    Targets to;
    int targets = 0;
    for (int q = 0; q < place.size(); ++q) {
      if (has_result(place, q)) to[static_cast<std::size_t>(targets++)] = target_of(q);
    }
    fold_from(place, place.size(), source_of, to, targets, elems, stores);
  }
  static Range own_piece(const ShmPlace& place) {
    return line_piece(place.call.elems, place.width(), place.size(), place.rank());
  }
  static Range piece_in(const ShmPlace& place, Range range, int q) {
    return line_piece(range.size(), place.width(), place.size(), q);
  }
  static std::int64_t slot_elems(const ShmPlace& place) {
    return place.elems_in(place.slot_bytes());
  }
};

// reduce_scatter(_v), whose ranks fold a row of all tensors each, and exclusive_scan, whose ranks
// fold the tensors of the ranks before them.
class OwnFold final : public ShmMoves {
 public:
  std::size_t in_bytes(const ShmCall& call, int size) const override {
    return static_cast<std::size_t>(scans(call) ? call.elems : begin_of_row(call, size)) *
           size_of(call.dtype);
  }
  std::size_t out_bytes(const ShmCall& call, int) const override {
    return static_cast<std::size_t>(longest_row(call)) * size_of(call.dtype);
  }
  void take_small(const ShmPlace& place) const override {
    const Range row = row_for(place, place.rank());
    fold_row(
        place, [&](int q) { return place.small(q) + place.bytes(row.begin); }, {0, row.size()},
        Stores::kCached);
  }

  bool are_shared(const ShmPlace& place) const override { return place.all_share_in(); }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    return parts_of(row_for(place, place.rank()).size(), direct_part_elems(place));
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    const Range row = row_for(place, place.rank());
    const Range range = part_of(row.size(), direct_part_elems(place), part);
    const bool cached = scans(place.call) || place.call.out == own_in(place, 0);
    fold_row(
        place, [&](int q) { return place.in_of(q) + place.bytes(row.begin + range.begin); }, range,
        cached ? Stores::kCached : stores_for(place.bytes(row.size())));
  }

  std::int64_t slot_parts(const ShmPlace& place) const override {
    return parts_of(longest_row(place.call), slot_elems(place));
  }
  void put(const ShmPlace& place, std::int64_t part) const override {
    const int r = place.rank();
    if (scans(place.call)) {
      return place.put_part({0, place.call.elems}, slot_elems(place), part, place.slot(r, part));
    }
    for (int k = 1; k < place.size(); ++k) {
      const int q = (r + k) % place.size();
      place.put_part(row_for(place, q), slot_elems(place), part, place.slot_row(r, part, q));
    }
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
    const int r = place.rank();
    const Range range = part_of(row_for(place, r).size(), slot_elems(place), part);
    fold_row(
        place,
        [&](int q) -> const std::byte* {
          if (q == r) return own_in(place, range.begin);
          return scans(place.call) ? place.slot(q, part) : place.slot_row(q, part, r);
        },
        range, Stores::kCached);
  }

  std::uint64_t sent(const ShmPlace& place, bool) const override {
    if (scans(place.call)) {
      return place.bytes(place.call.elems) *
             static_cast<std::uint64_t>(place.size() - 1 - place.rank());
    }
    return place.bytes(begin_of_row(place.call, place.size()) -
                       row_for(place, place.rank()).size());
  }

 private:
  static bool scans(const ShmCall& call) { return call.kind == OpKind::kExclusiveScan; }
  static Range row_for(const ShmPlace& place, int q) {
    return scans(place.call) ? Range{0, place.call.elems} : row_of(place.call, q);
  }
  // From element `at` of its row on.
  static const std::byte* own_in(const ShmPlace& place, std::int64_t at) {
    return place.call.in + place.bytes(row_for(place, place.rank()).begin + at);
  }
  static std::int64_t slot_elems(const ShmPlace& place) {
    return place.elems_in(scans(place.call) ? place.slot_bytes() : place.slot_row_bytes());
  }
  // Elements `range` of this rank's row into out.
  template <typename Source>
  static void fold_row(const ShmPlace& place, const Source& source_of, Range range, Stores stores) {
    std::byte* out = place.call.out + place.bytes(range.begin);
    const int count = scans(place.call) ? place.rank() : place.size();
    if (count > 0) return fold_from(place, count, source_of, {out}, 1, range.size(), stores);
    const TensorView view(out, Shape::vector(range.size()), place.call.dtype);
    static_cast<void>(fill_neutral(place.call.op, view, {}));  // host memory: cannot fail
  }
};

}  // namespace

const ShmMoves& shm_all_reduce() {
  static const AllReduce moves;
  return moves;
}

const ShmMoves& shm_own_fold() {
  static const OwnFold moves;
  return moves;
}

}  // namespace gradwire
