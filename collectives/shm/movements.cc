// all_gather(_v), all_to_all, broadcast and barrier in shared memory: every rank copies what is
// meant for it from where the others have it, each byte once where tensors are shared or can be
// read in their processes, and twice where they pass through slots.
#include <algorithm>
#include <cstring>

#include "collectives/shm/moves.h"
#include "collectives/shm/rows.h"

namespace gradwire {
namespace {

// Rows of call.elems, or of call.lengths.
class AllGather final : public ShmMoves {
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
  void put_small(const ShmPlace& place, std::byte* own) const override {
    copy_with(Stores::kCached, own, place.call.in, place.bytes(row(place, place.rank()).size()));
  }
  void take_small(const ShmPlace& place) const override {
    for (int q = 0; q < place.size(); ++q) {
      const Range to = row(place, q);
      std::byte* out = place.call.out + place.bytes(to.begin);
      if (q == place.rank()) {
        keep_row(out, place.call.in, place.bytes(to.size()));
      } else {
        copy_with(Stores::kCached, out, place.small(q), place.bytes(to.size()));
      }
    }
  }

  bool are_shared(const ShmPlace& place) const override {
    for (int q = 0; q < place.size(); ++q) {
      if (!place.shares_in(q) && row(place, q).size() > 0) return false;
    }
    return true;
  }
  bool are_readable(const ShmPlace& place) const override {
    if (out_bytes(place.call, place.size()) > kReadingBytes) return false;
    for (int q = 0; q < place.size(); ++q) {
      if (!place.reaches_in(q) && row(place, q).size() > 0) return false;
    }
    return true;
  }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    return place.size() * parts_of(longest_row(place.call), direct_elems(place));
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    const std::int64_t each = parts_of(longest_row(place.call), direct_elems(place));
    const int q = static_cast<int>((place.rank() + part / each) % place.size());
    copy_part(place, q, direct_elems(place), part % each, nullptr);
  }

  std::int64_t slot_parts(const ShmPlace& place) const override {
    return parts_of(longest_row(place.call), slot_elems(place));
  }
  void put(const ShmPlace& place, std::int64_t part) const override {
    const Range own = row(place, place.rank());
    const Range range = part_of(own.size(), slot_elems(place), part);
    if (range.size() <= 0) return;
    copy_with(Stores::kCached, place.slot(place.rank(), part),
              place.call.in + place.bytes(range.begin), place.bytes(range.size()));
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
    for (int k = 0; k < place.size(); ++k) {
      const int q = (place.rank() + k) % place.size();
      copy_part(place, q, slot_elems(place), part, place.slot(q, part));
    }
  }

  std::uint64_t sent(const ShmPlace& place, bool) const override {
    return place.bytes(row(place, place.rank()).size()) *
           static_cast<std::uint64_t>(place.size() - 1);
  }

 private:
  static Range row(const ShmPlace& place, int q) { return row_of(place.call, q); }
  static std::int64_t direct_elems(const ShmPlace& place) { return place.elems_in(kDirectBytes); }
  static std::int64_t slot_elems(const ShmPlace& place) {
    return place.elems_in(ShmChannel::kSlotBytes);
  }
  // Part `part` of row q into out, from a slot, or from the rank's own tensor where that is null.
  static void copy_part(const ShmPlace& place, int q, std::int64_t each, std::int64_t part,
                        const std::byte* slot) {
    const Range to = row(place, q);
    const Range range = part_of(to.size(), each, part);
    if (range.size() <= 0) return;
    const std::size_t bytes = place.bytes(range.size());
    std::byte* out = place.call.out + place.bytes(to.begin + range.begin);
    if (q == place.rank()) return keep_row(out, place.call.in + place.bytes(range.begin), bytes);
    const Stores stores = stores_for(place.bytes(begin_of_row(place.call, place.size())));
    if (slot != nullptr) return copy_with(stores, out, slot, bytes);
    place.copy_in_of(q, place.bytes(range.begin), out, bytes, stores);
  }
};

// call.elems: of one row; row q of in goes to rank q.
class AllToAll final : public ShmMoves {
 public:
  std::size_t in_bytes(const ShmCall& call, int size) const override {
    return static_cast<std::size_t>(call.elems * size) * size_of(call.dtype);
  }
  std::size_t out_bytes(const ShmCall& call, int size) const override {
    return in_bytes(call, size);
  }
  std::size_t small_bytes(const ShmCall& call, int size) const override {
    return in_bytes(call, size);
  }
  void put_small(const ShmPlace& place, std::byte* own) const override {
    copy_with(Stores::kCached, own, place.call.in, in_bytes(place.call, place.size()));
  }
  void take_small(const ShmPlace& place) const override {
    const std::size_t row = place.bytes(place.call.elems);
    for (int q = 0; q < place.size(); ++q) {
      copy_with(Stores::kCached, place.call.out + static_cast<std::size_t>(q) * row,
                place.small(q) + static_cast<std::size_t>(place.rank()) * row, row);
    }
  }

  bool are_shared(const ShmPlace& place) const override {
    for (int q = 0; q < place.size(); ++q) {
      if (!place.shares_in(q)) return false;
    }
    return true;
  }
  bool are_readable(const ShmPlace& place) const override {
    if (out_bytes(place.call, place.size()) > kReadingBytes) return false;
    for (int q = 0; q < place.size(); ++q) {
      if (!place.reaches_in(q)) return false;
    }
    return true;
  }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    return place.size() * parts_of(place.call.elems, place.elems_in(kDirectBytes));
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    const std::int64_t each = parts_of(place.call.elems, place.elems_in(kDirectBytes));
    const int q = static_cast<int>((place.rank() + part / each) % place.size());
    const Range range = part_of(place.call.elems, place.elems_in(kDirectBytes), part % each);
    place.copy_in_of(q, place.bytes(place.rank() * place.call.elems + range.begin),
                     place.call.out + place.bytes(q * place.call.elems + range.begin),
                     place.bytes(range.size()), stores(place));
  }

  std::int64_t slot_parts(const ShmPlace& place) const override {
    return parts_of(place.call.elems, slot_elems(place));
  }
  void put(const ShmPlace& place, std::int64_t part) const override {
    const Range range = part_of(place.call.elems, slot_elems(place), part);
    for (int k = 1; k < place.size(); ++k) {
      const int q = (place.rank() + k) % place.size();
      copy_with(Stores::kCached, place.slot(place.rank(), part) + row_at(place, q),
                place.call.in + place.bytes(q * place.call.elems + range.begin),
                place.bytes(range.size()));
    }
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
    const Range range = part_of(place.call.elems, slot_elems(place), part);
    const int r = place.rank();
    take_range(place, r, range, place.call.in + place.bytes(r * place.call.elems + range.begin));
    for (int k = 1; k < place.size(); ++k) {
      const int q = (r + k) % place.size();
      take_range(place, q, range, place.slot(q, part) + row_at(place, r));
    }
  }

  std::uint64_t sent(const ShmPlace& place, bool) const override {
    return place.bytes(place.call.elems) * static_cast<std::uint64_t>(place.size() - 1);
  }

 private:
  static std::size_t slot_row(const ShmPlace& place) {
    return ShmChannel::kSlotBytes / static_cast<std::size_t>(place.size()) / 64 * 64;
  }
  static std::int64_t slot_elems(const ShmPlace& place) { return place.elems_in(slot_row(place)); }
  static std::size_t row_at(const ShmPlace& place, int q) {
    return slot_row(place) * static_cast<std::size_t>(q);
  }
  static Stores stores(const ShmPlace& place) {
    return stores_for(place.bytes(place.call.elems) * static_cast<std::size_t>(place.size()));
  }
  static void take_range(const ShmPlace& place, int q, Range range, const std::byte* from) {
    copy_with(stores(place), place.call.out + place.bytes(q * place.call.elems + range.begin), from,
              place.bytes(range.size()));
  }
};

// root's in to everybody's out, its own too.
class Broadcast final : public ShmMoves {
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
  Awaited awaited() const override { return Awaited::kRootAlone; }
  void put_small(const ShmPlace& place, std::byte* own) const override {
    if (is_root(place)) {
      copy_with(Stores::kCached, own, place.call.in, in_bytes(place.call, place.size()));
    }
  }
  void take_small(const ShmPlace& place) const override {
    const std::size_t bytes = in_bytes(place.call, place.size());
    if (is_root(place)) return keep_row(place.call.out, place.call.in, bytes);
    copy_with(Stores::kCached, place.call.out, place.small(place.call.root), bytes);
  }

  bool are_shared(const ShmPlace& place) const override { return place.shares_in(place.call.root); }
  bool are_readable(const ShmPlace& place) const override {
    return place.bytes(place.call.elems) <= kReadingBytes / 2 && place.reaches_in(place.call.root);
  }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    return parts_of(place.call.elems, place.elems_in(kDirectBytes));
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    const Range range = part_of(place.call.elems, place.elems_in(kDirectBytes), part);
    std::byte* to = place.call.out + place.bytes(range.begin);
    const std::size_t bytes = place.bytes(range.size());
    if (is_root(place)) return keep_row(to, place.call.in + place.bytes(range.begin), bytes);
    place.copy_in_of(place.call.root, place.bytes(range.begin), to, bytes,
                     stores_for(place.bytes(place.call.elems)));
  }

  std::int64_t slot_parts(const ShmPlace& place) const override {
    return parts_of(place.call.elems, slot_elems(place));
  }
  void put(const ShmPlace& place, std::int64_t part) const override {
    if (!is_root(place)) return;
    const Range range = part_of(place.call.elems, slot_elems(place), part);
    copy_with(Stores::kCached, place.slot(place.rank(), part),
              place.call.in + place.bytes(range.begin), place.bytes(range.size()));
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
    copy(place, part_of(place.call.elems, slot_elems(place), part),
         place.slot(place.call.root, part));
  }

  std::uint64_t sent(const ShmPlace& place, bool) const override {
    return is_root(place) ? in_bytes(place.call, 0) * static_cast<std::uint64_t>(place.size() - 1)
                          : 0;
  }

 private:
  static bool is_root(const ShmPlace& place) { return place.rank() == place.call.root; }
  static std::int64_t slot_elems(const ShmPlace& place) {
    return place.elems_in(ShmChannel::kSlotBytes);
  }
  static void copy(const ShmPlace& place, Range range, const std::byte* from) {
    std::byte* to = place.call.out + place.bytes(range.begin);
    const std::size_t bytes = place.bytes(range.size());
    if (is_root(place)) return keep_row(to, place.call.in + place.bytes(range.begin), bytes);
    copy_with(stores_for(place.bytes(place.call.elems)), to, from, bytes);
  }
};

class Barrier final : public ShmMoves {
 public:
  std::size_t in_bytes(const ShmCall&, int) const override { return 0; }
  std::size_t out_bytes(const ShmCall&, int) const override { return 0; }
  std::size_t small_bytes(const ShmCall&, int) const override { return 0; }
  void put_small(const ShmPlace&, std::byte*) const override {}
  void take_small(const ShmPlace&) const override {}
  bool are_shared(const ShmPlace&) const override { return false; }
  std::int64_t direct_parts(const ShmPlace&) const override { return 0; }
  void direct(const ShmPlace&, std::int64_t) const override {}
  std::int64_t slot_parts(const ShmPlace&) const override { return 0; }
  void put(const ShmPlace&, std::int64_t) const override {}
  void take(const ShmPlace&, std::int64_t) const override {}
  std::uint64_t sent(const ShmPlace&, bool) const override { return 0; }
};

}  // namespace

const ShmMoves& shm_all_gather() {
  static const AllGather moves;
  return moves;
}

const ShmMoves& shm_all_to_all() {
  static const AllToAll moves;
  return moves;
}

const ShmMoves& shm_broadcast() {
  static const Broadcast moves;
  return moves;
}

const ShmMoves& shm_barrier() {
  static const Barrier moves;
  return moves;
}

}  // namespace gradwire
