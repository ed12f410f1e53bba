// all_reduce, reduce and reduce_scatter(_v) in shared memory, as a left fold in rank order.
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
// reduce_scatter of rows of N bytes: row r is folded from the others' memory, straight into out.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "collectives/shm/moves.h"
#include "collectives/shm/rows.h"

namespace gradwire {
namespace {

using Sources = std::array<const std::byte*, ShmChannel::kMostRanks>;
using Targets = std::array<std::byte*, ShmChannel::kMostRanks>;

void fold_all(const ShmPlace& place, const Sources& sources, const Targets& targets,
              std::size_t target_count, std::int64_t elems, Stores stores) {
  const auto count = static_cast<std::size_t>(place.size());
  fold(place.call.op, place.call.dtype, std::span(sources.data(), count),
       std::span(targets.data(), target_count), elems, stores);
}

// Folding everything on every rank pays while reading it costs less than a second wait.
std::size_t fold_limit(int size) {
  constexpr std::size_t kTogether = 16 << 10;
  const std::size_t each = kTogether / static_cast<std::size_t>(size);
  return each < ShmChannel::kSmallBytes ? each : ShmChannel::kSmallBytes;
}

class AllReduce : public ShmMoves {
 public:
  std::size_t in_bytes(const ShmCall& call, int) const override {
    return static_cast<std::size_t>(call.elems) * size_of(call.dtype);
  }
  std::size_t out_bytes(const ShmCall& call, int size) const override {
    return in_bytes(call, size);
  }
  std::size_t small_bytes(const ShmCall& call, int size) const override {
    return in_bytes(call, size);
  }
  std::size_t small_limit(int size, ShmReach before) const override {
    constexpr std::size_t kDirectFrom = 2 << 10;
    return before == ShmReach::kShared ? std::min(kDirectFrom, fold_limit(size)) : fold_limit(size);
  }

  void put_small(const ShmPlace& place, std::byte* own) const override {
    copy_with(Stores::kCached, own, place.call.in, place.bytes(place.call.elems));
  }
  void take_small(const ShmPlace& place) const override {
    Sources sources;
    for (int q = 0; q < place.size(); ++q) sources[static_cast<std::size_t>(q)] = place.small(q);
    fold_all(place, sources, {place.call.out}, 1, place.call.elems, Stores::kCached);
  }

  bool are_shared(const ShmPlace& place) const override {
    for (int q = 0; q < place.size(); ++q) {
      if (!place.shares_in(q) || !place.shares_out(q)) return false;
    }
    return true;
  }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    return parts_of(own_piece(place).size(), direct_elems(place));
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    const Range own = own_piece(place);
    const Range range = part_of(own.size(), direct_elems(place), part);
    const std::size_t at = place.bytes(own.begin + range.begin);
    Sources sources;
    Targets targets;
    for (int q = 0; q < place.size(); ++q) {
      sources[static_cast<std::size_t>(q)] = place.in_of(q) + at;
      targets[static_cast<std::size_t>(q)] = place.out_of(q) + at;
    }
    // In place the lines are in the cache already: streaming would have to throw them out first,
    // and takes twice as long.
    const bool in_place = place.call.in == place.call.out;
    fold_all(place, sources, targets, static_cast<std::size_t>(place.size()), range.size(),
             in_place ? Stores::kCached : stores_for(place.bytes(place.call.elems)));
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
    Sources sources;
    Targets targets;
    for (int q = 0; q < place.size(); ++q) {
      const bool mine = q == place.rank();
      targets[static_cast<std::size_t>(q)] =
          mine ? place.call.out + offset : place.slot(q, part) + at;
      sources[static_cast<std::size_t>(q)] =
          mine ? place.call.in + offset : place.slot(q, part) + at;
    }
    fold_all(place, sources, targets, static_cast<std::size_t>(place.size()), own.size(),
             Stores::kCached);
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
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
    const auto others = static_cast<std::uint64_t>(place.size() - 1);
    const std::uint64_t all = place.bytes(place.call.elems);
    if (small) return others * all;
    const std::uint64_t own = place.bytes(own_piece(place).size());
    return all - own + others * own;
  }

 protected:
  static Range own_piece(const ShmPlace& place) {
    return line_piece(place.call.elems, place.width(), place.size(), place.rank());
  }
  static Range piece_in(const ShmPlace& place, Range range, int q) {
    return line_piece(range.size(), place.width(), place.size(), q);
  }
  static std::int64_t direct_elems(const ShmPlace& place) {
    return static_cast<std::int64_t>(kDirectBytes / place.width());
  }
  static std::int64_t slot_elems(const ShmPlace& place) {
    return static_cast<std::int64_t>(ShmChannel::kSlotBytes / place.width());
  }
};

// Root alone has the result.
class Reduce final : public AllReduce {
 public:
  Awaited awaited() const override { return Awaited::kByRoot; }
  void take_small(const ShmPlace& place) const override {
    if (is_root(place)) AllReduce::take_small(place);
  }

  bool are_shared(const ShmPlace& place) const override {
    for (int q = 0; q < place.size(); ++q) {
      if (!place.shares_in(q)) return false;
    }
    return place.shares_out(place.call.root);
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    const Range own = own_piece(place);
    const Range range = part_of(own.size(), direct_elems(place), part);
    const std::size_t at = place.bytes(own.begin + range.begin);
    Sources sources;
    for (int q = 0; q < place.size(); ++q) {
      sources[static_cast<std::size_t>(q)] = place.in_of(q) + at;
    }
    fold_all(place, sources, {place.out_of(place.call.root) + at}, 1, range.size(),
             Stores::kCached);
  }

  void combine(const ShmPlace& place, std::int64_t part) const override {
    const Range range = part_of(place.call.elems, slot_elems(place), part);
    const Range own = piece_in(place, range, place.rank());
    const std::size_t at = place.bytes(own.begin);
    const std::size_t offset = place.bytes(range.begin) + at;
    Sources sources;
    for (int q = 0; q < place.size(); ++q) {
      sources[static_cast<std::size_t>(q)] =
          q == place.rank() ? place.call.in + offset : place.slot(q, part) + at;
    }
    std::byte* const to =
        is_root(place) ? place.call.out + offset : place.slot(place.call.root, part) + at;
    fold_all(place, sources, {to}, 1, own.size(), Stores::kCached);
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
    if (is_root(place)) AllReduce::take(place, part);
  }

  std::uint64_t sent(const ShmPlace& place, bool small) const override {
    const std::uint64_t all = place.bytes(place.call.elems);
    if (small) return is_root(place) ? 0 : all;
    const std::uint64_t own = place.bytes(own_piece(place).size());
    return all - own + (is_root(place) ? 0 : own);
  }

 private:
  static bool is_root(const ShmPlace& place) { return place.rank() == place.call.root; }
};

// Rows of call.elems, or of call.lengths.
class ReduceScatter final : public ShmMoves {
 public:
  std::size_t in_bytes(const ShmCall& call, int size) const override {
    return static_cast<std::size_t>(begin_of_row(call, size)) * size_of(call.dtype);
  }
  std::size_t out_bytes(const ShmCall& call, int) const override {
    return static_cast<std::size_t>(longest_row(call)) * size_of(call.dtype);
  }
  std::size_t small_bytes(const ShmCall& call, int size) const override {
    return in_bytes(call, size);
  }
  void put_small(const ShmPlace& place, std::byte* own) const override {
    copy_with(Stores::kCached, own, place.call.in, in_bytes(place.call, place.size()));
  }
  void take_small(const ShmPlace& place) const override {
    const Range row = row_of(place.call, place.rank());
    Sources sources;
    for (int q = 0; q < place.size(); ++q) {
      sources[static_cast<std::size_t>(q)] = place.small(q) + place.bytes(row.begin);
    }
    fold_all(place, sources, {place.call.out}, 1, row.size(), Stores::kCached);
  }

  bool are_shared(const ShmPlace& place) const override {
    for (int q = 0; q < place.size(); ++q) {
      if (!place.shares_in(q)) return false;
    }
    return true;
  }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    return parts_of(row_of(place.call, place.rank()).size(), direct_elems(place));
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    const Range row = row_of(place.call, place.rank());
    const Range range = part_of(row.size(), direct_elems(place), part);
    Sources sources;
    for (int q = 0; q < place.size(); ++q) {
      sources[static_cast<std::size_t>(q)] = place.in_of(q) + place.bytes(row.begin + range.begin);
    }
    fold_all(place, sources, {place.call.out + place.bytes(range.begin)}, 1, range.size(),
             stores_for(place.bytes(row.size())));
  }

  std::int64_t slot_parts(const ShmPlace& place) const override {
    return parts_of(longest_row(place.call), slot_elems(place));
  }
  void put(const ShmPlace& place, std::int64_t part) const override {
    for (int k = 1; k < place.size(); ++k) {
      const int q = (place.rank() + k) % place.size();
      const Range row = row_of(place.call, q);
      const Range range = part_of(row.size(), slot_elems(place), part);
      if (range.size() <= 0) continue;
      copy_with(Stores::kCached, place.slot(place.rank(), part) + row_at(place, q),
                place.call.in + place.bytes(row.begin + range.begin), place.bytes(range.size()));
    }
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
    const int r = place.rank();
    const Range row = row_of(place.call, r);
    const Range range = part_of(row.size(), slot_elems(place), part);
    if (range.size() <= 0) return;
    Sources sources;
    for (int q = 0; q < place.size(); ++q) {
      sources[static_cast<std::size_t>(q)] =
          q == r ? place.call.in + place.bytes(row.begin + range.begin)
                 : place.slot(q, part) + row_at(place, r);
    }
    fold_all(place, sources, {place.call.out + place.bytes(range.begin)}, 1, range.size(),
             Stores::kCached);
  }

  std::uint64_t sent(const ShmPlace& place, bool) const override {
    const std::int64_t all = begin_of_row(place.call, place.size());
    return place.bytes(all - row_of(place.call, place.rank()).size());
  }

 private:
  static std::int64_t direct_elems(const ShmPlace& place) {
    return static_cast<std::int64_t>(kDirectBytes / place.width());
  }
  // A slot holds the same part of every row.
  static std::size_t slot_row(const ShmPlace& place) {
    return ShmChannel::kSlotBytes / static_cast<std::size_t>(place.size()) / 64 * 64;
  }
  static std::int64_t slot_elems(const ShmPlace& place) {
    return static_cast<std::int64_t>(slot_row(place) / place.width());
  }
  static std::size_t row_at(const ShmPlace& place, int q) {
    return slot_row(place) * static_cast<std::size_t>(q);
  }
};

}  // namespace

const ShmMoves& shm_all_reduce() {
  static const AllReduce moves;
  return moves;
}

const ShmMoves& shm_reduce() {
  static const Reduce moves;
  return moves;
}

const ShmMoves& shm_reduce_scatter() {
  static const ReduceScatter moves;
  return moves;
}

}  // namespace gradwire
