// gather(_v), scatter(_v) and exclusive_scan in shared memory.
//
// gather of rows of N bytes: each rank copies its row into root's tensor where that is shared; else
// root copies them out of slots.
// scatter: each rank copies its row out of root's tensor where that is shared; else root puts all
// rows into slots.
// exclusive_scan of N bytes: rank r folds what ranks 0 .. r - 1 have, in their order, which reads
// (p - 1) N / 2 bytes a rank on average; nobody waits for anybody else's result.
#include <array>
#include <cstring>
#include <span>

#include "collectives/shm/moves.h"
#include "collectives/shm/rows.h"
#include "device/ops.h"

namespace gradwire {
namespace {

bool is_root(const ShmPlace& place) { return place.rank() == place.call.root; }

class Gather final : public ShmMoves {
 public:
  std::size_t in_bytes(const ShmCall& call, int) const override {
    return static_cast<std::size_t>(longest_row(call)) * size_of(call.dtype);
  }
  std::size_t out_bytes(const ShmCall& call, int size) const override {
    return static_cast<std::size_t>(begin_of_row(call, size)) * size_of(call.dtype);
  }
  std::size_t small_bytes(const ShmCall& call, int size) const override {
    return in_bytes(call, size);
  }
  Awaited awaited() const override { return Awaited::kByRoot; }
  void put_small(const ShmPlace& place, std::byte* own) const override {
    copy_with(Stores::kCached, own, place.call.in,
              place.bytes(row_of(place.call, place.rank()).size()));
  }
  void take_small(const ShmPlace& place) const override {
    for (int q = 0; q < place.size() && is_root(place); ++q) {
      take_row(place, q, {0, row_of(place.call, q).size()}, place.small(q));
    }
  }

  bool are_shared(const ShmPlace& place) const override {
    return place.shares_out(place.call.root);
  }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    return parts_of(row_of(place.call, place.rank()).size(), place.elems_in(kDirectBytes));
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    const Range row = row_of(place.call, place.rank());
    const Range range = part_of(row.size(), place.elems_in(kDirectBytes), part);
    std::byte* to = place.out_of(place.call.root) + place.bytes(row.begin + range.begin);
    const std::byte* from = place.call.in + place.bytes(range.begin);
    if (is_root(place)) return keep_row(to, from, place.bytes(range.size()));
    copy_with(stores_for(out_bytes(place.call, place.size())), to, from, place.bytes(range.size()));
  }

  std::int64_t slot_parts(const ShmPlace& place) const override {
    return parts_of(longest_row(place.call), place.elems_in(ShmChannel::kSlotBytes));
  }
  void put(const ShmPlace& place, std::int64_t part) const override {
    if (is_root(place)) return;
    const Range range = slot_range(place, place.rank(), part);
    if (range.size() <= 0) return;
    copy_with(Stores::kCached, place.slot(place.rank(), part),
              place.call.in + place.bytes(range.begin), place.bytes(range.size()));
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
    for (int q = 0; q < place.size() && is_root(place); ++q) {
      take_row(place, q, slot_range(place, q, part), place.slot(q, part));
    }
  }

  std::uint64_t sent(const ShmPlace& place, bool) const override {
    return is_root(place) ? 0 : place.bytes(row_of(place.call, place.rank()).size());
  }

 private:
  static Range slot_range(const ShmPlace& place, int q, std::int64_t part) {
    return part_of(row_of(place.call, q).size(), place.elems_in(ShmChannel::kSlotBytes), part);
  }
  // `range` of row q, from where the others put it.
  static void take_row(const ShmPlace& place, int q, Range range, const std::byte* from) {
    if (range.size() <= 0) return;
    const std::size_t bytes = place.bytes(range.size());
    std::byte* to = place.call.out + place.bytes(row_of(place.call, q).begin + range.begin);
    if (q == place.rank()) return keep_row(to, place.call.in + place.bytes(range.begin), bytes);
    copy_with(Stores::kCached, to, from, bytes);
  }
};

class Scatter final : public ShmMoves {
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
  Awaited awaited() const override { return Awaited::kRootAlone; }
  void put_small(const ShmPlace& place, std::byte* own) const override {
    if (!is_root(place)) return;
    copy_with(Stores::kCached, own, place.call.in, in_bytes(place.call, place.size()));
  }
  void take_small(const ShmPlace& place) const override {
    const Range row = row_of(place.call, place.rank());
    take_part(place, {0, row.size()}, place.small(place.call.root) + place.bytes(row.begin));
  }

  bool are_shared(const ShmPlace& place) const override { return place.shares_in(place.call.root); }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    return parts_of(row_of(place.call, place.rank()).size(), place.elems_in(kDirectBytes));
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    const Range row = row_of(place.call, place.rank());
    const Range range = part_of(row.size(), place.elems_in(kDirectBytes), part);
    take_part(place, range, place.in_of(place.call.root) + place.bytes(row.begin + range.begin));
  }

  // A slot holds the same part of every row.
  std::int64_t slot_parts(const ShmPlace& place) const override {
    return parts_of(longest_row(place.call), place.elems_in(slot_row(place)));
  }
  void put(const ShmPlace& place, std::int64_t part) const override {
    for (int q = 0; q < place.size() && is_root(place); ++q) {
      const Range row = row_of(place.call, q);
      const Range range = part_of(row.size(), place.elems_in(slot_row(place)), part);
      if (q == place.rank() || range.size() <= 0) continue;
      copy_with(Stores::kCached, place.slot(place.rank(), part) + row_at(place, q),
                place.call.in + place.bytes(row.begin + range.begin), place.bytes(range.size()));
    }
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
    const Range row = row_of(place.call, place.rank());
    const Range range = part_of(row.size(), place.elems_in(slot_row(place)), part);
    take_part(place, range, place.slot(place.call.root, part) + row_at(place, place.rank()));
  }

  std::uint64_t sent(const ShmPlace& place, bool) const override {
    const std::int64_t all = begin_of_row(place.call, place.size());
    return is_root(place) ? place.bytes(all - row_of(place.call, place.rank()).size()) : 0;
  }

 private:
  static std::size_t slot_row(const ShmPlace& place) {
    return ShmChannel::kSlotBytes / static_cast<std::size_t>(place.size()) / 64 * 64;
  }
  static std::size_t row_at(const ShmPlace& place, int q) {
    return slot_row(place) * static_cast<std::size_t>(q);
  }
  // `range` of this rank's row; root's own is in its tensor.
  static void take_part(const ShmPlace& place, Range range, const std::byte* from) {
    if (range.size() <= 0) return;
    const std::size_t bytes = place.bytes(range.size());
    std::byte* to = place.call.out + place.bytes(range.begin);
    if (!is_root(place)) return copy_with(Stores::kCached, to, from, bytes);
    const std::int64_t own = row_of(place.call, place.rank()).begin + range.begin;
    keep_row(to, place.call.in + place.bytes(own), bytes);
  }
};

class ExclusiveScan final : public ShmMoves {
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
  void put_small(const ShmPlace& place, std::byte* own) const override {
    copy_with(Stores::kCached, own, place.call.in, place.bytes(place.call.elems));
  }
  void take_small(const ShmPlace& place) const override {
    Sources sources;
    for (int q = 0; q < place.rank(); ++q) sources[static_cast<std::size_t>(q)] = place.small(q);
    fold_before(place, sources, {0, place.call.elems});
  }

  bool are_shared(const ShmPlace& place) const override {
    for (int q = 0; q < place.size(); ++q) {
      if (!place.shares_in(q)) return false;
    }
    return true;
  }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    return parts_of(place.call.elems, place.elems_in(kDirectBytes));
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    const Range range = part_of(place.call.elems, place.elems_in(kDirectBytes), part);
    Sources sources;
    for (int q = 0; q < place.rank(); ++q) {
      sources[static_cast<std::size_t>(q)] = place.in_of(q) + place.bytes(range.begin);
    }
    fold_before(place, sources, range);
  }

  std::int64_t slot_parts(const ShmPlace& place) const override {
    return parts_of(place.call.elems, place.elems_in(ShmChannel::kSlotBytes));
  }
  void put(const ShmPlace& place, std::int64_t part) const override {
    const Range range = slot_range(place, part);
    copy_with(Stores::kCached, place.slot(place.rank(), part),
              place.call.in + place.bytes(range.begin), place.bytes(range.size()));
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
    Sources sources;
    for (int q = 0; q < place.rank(); ++q) {
      sources[static_cast<std::size_t>(q)] = place.slot(q, part);
    }
    fold_before(place, sources, slot_range(place, part));
  }

  std::uint64_t sent(const ShmPlace& place, bool) const override {
    return place.bytes(place.call.elems) *
           static_cast<std::uint64_t>(place.size() - 1 - place.rank());
  }

 private:
  using Sources = std::array<const std::byte*, ShmChannel::kMostRanks>;

  static Range slot_range(const ShmPlace& place, std::int64_t part) {
    return part_of(place.call.elems, place.elems_in(ShmChannel::kSlotBytes), part);
  }
  // sources: those of the ranks before this one, at `range`.
  static void fold_before(const ShmPlace& place, const Sources& sources, Range range) {
    std::byte* out = place.call.out + place.bytes(range.begin);
    if (place.rank() == 0) {
      const TensorView view(out, Shape::vector(range.size()), place.call.dtype);
      return static_cast<void>(fill_neutral(place.call.op, view, {}));  // host memory: cannot fail
    }
    std::array<std::byte*, 1> targets{out};
    fold(place.call.op, place.call.dtype,
         std::span(sources.data(), static_cast<std::size_t>(place.rank())), targets, range.size(),
         Stores::kCached);
  }
};

}  // namespace

const ShmMoves& shm_gather() {
  static const Gather moves;
  return moves;
}

const ShmMoves& shm_scatter() {
  static const Scatter moves;
  return moves;
}

const ShmMoves& shm_exclusive_scan() {
  static const ExclusiveScan moves;
  return moves;
}

}  // namespace gradwire
