// all_gather(_v), all_to_all, broadcast, gather(_v), scatter(_v) and barrier in shared memory:
// every rank copies what is meant for it from where the others have it, each byte once where
// tensors are shared or can be read in their processes, and twice where they pass through slots.
// Of a gather to a tensor that is shared, each rank writes its own row.
#include <unistd.h>

#include <cstring>

#include "collectives/shm/moves.h"
#include "comm/shm/peer_memory.h"

namespace gradwire {

void ShmPlace::copy_in_of(int q, std::size_t offset, std::byte* to, std::size_t bytes,
                          Stores stores) const {
  if (bytes == 0) return;
  if (shares_in(q)) return copy_with(stores, to, in_of(q) + offset, bytes);
  const std::uint64_t from = channel.notice(q, n).address + offset;
  const auto process = static_cast<pid_t>(channel.process_of(q));
  if (process == getpid()) {  // this rank, or one that is a thread beside it
    const auto* here = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(from));
    return copy_with(stores, to, here, bytes);
  }
  const Status outcome = shm::read_process(process, from, ByteSpan(to, bytes));
  if (!outcome.ok() && unread != nullptr) *unread = q;
}

void ShmPlace::put_part(Range of, std::int64_t each, std::int64_t part, std::byte* to) const {
  const Range range = part_of(of.size(), each, part);
  if (range.size() <= 0) return;
  copy_with(Stores::kCached, to, call.in + bytes(of.begin + range.begin), bytes(range.size()));
}

std::size_t ShmMoves::small_limit(int, ShmReach before) const {
  constexpr std::size_t kSharedFrom = 4 << 10;
  constexpr std::size_t kReadingFrom = 16 << 10;
  constexpr std::size_t kBoardFrom = 32 << 10;
  return before == ShmReach::kShared    ? kSharedFrom
         : before == ShmReach::kReading ? kReadingFrom
                                        : kBoardFrom;
}

namespace {

// Up to so many bytes of results, tensors in the others' own memory are read there rather than put
// into slots: one copy instead of two, but by the kernel, page by page.
constexpr std::size_t kReadingBytes = 4 << 20;

// A rank's own row, unless it is already there.
void keep_row(std::byte* to, const std::byte* from, std::size_t bytes, Stores stores) {
  if (to == from) return;
  if (stores == Stores::kStreaming) return copy_with(stores, to, from, bytes);
  std::memmove(to, from, bytes);
}

// What one rank has for another: elements of its `in`, and where in the other's `out` they begin.
struct Block {
  Range from = {0, 0};
  std::int64_t to = 0;
};

class Movements final : public ShmMoves {
 public:
  explicit Movements(OpKind base)
      : base_(base),
        from_root_(base == OpKind::kBroadcast || base == OpKind::kScatter),
        by_rows_(base == OpKind::kAllToAll || base == OpKind::kScatter) {}

  std::size_t in_bytes(const ShmCall& call, int size) const override {
    return static_cast<std::size_t>(by_rows_ ? begin_of_row(call, size) : longest_row(call)) *
           size_of(call.dtype);
  }
  std::size_t out_bytes(const ShmCall& call, int size) const override {
    const bool row = from_root_ || base_ == OpKind::kBarrier;
    return static_cast<std::size_t>(row ? longest_row(call) : begin_of_row(call, size)) *
           size_of(call.dtype);
  }

  Awaited awaited(const ShmCall&) const override {
    if (from_root_) return Awaited::kRootAlone;
    return base_ == OpKind::kGather ? Awaited::kByRoot : Awaited::kAll;
  }
  void put_small(const ShmPlace& place, std::byte* own) const override {
    if (by_rows_) {
      if (base_ == OpKind::kScatter && !place.is_root()) return;
      return ShmMoves::put_small(place, own);
    }
    copy_with(Stores::kCached, own, place.call.in, place.bytes(block_of_own(place).from.size()));
  }
  void take_small(const ShmPlace& place) const override {
    for (int q = first_sender(place); q < end_of_senders(place); ++q) {
      const Block block = block_of(place.call, q, place.rank());
      take_part(place, q, block, {0, block.from.size()},
                place.small(q) + place.bytes(block.from.begin));
    }
  }

  bool are_shared(const ShmPlace& place) const override {
    if (base_ == OpKind::kGather) return place.shares_out(place.call.root);
    return all_senders(place, [&](int q) { return place.shares_in(q); });
  }
  bool are_readable(const ShmPlace& place) const override {
    if (base_ == OpKind::kGather || base_ == OpKind::kScatter) return false;
    const std::size_t most = base_ == OpKind::kBroadcast ? kReadingBytes / 2 : kReadingBytes;
    return out_bytes(place.call, place.size()) <= most &&
           all_senders(place, [&](int q) { return place.reaches_in(q); });
  }
  std::int64_t direct_parts(const ShmPlace& place) const override {
    if (base_ == OpKind::kGather) {
      return parts_of(row_of(place.call, place.rank()).size(), direct_elems(place));
    }
    return (end_of_senders(place) - first_sender(place)) * parts_of_row(place);
  }
  void direct(const ShmPlace& place, std::int64_t part) const override {
    if (base_ == OpKind::kGather) return write_to_root(place, part);
    const int turned = static_cast<int>(place.rank() + part / parts_of_row(place)) % place.size();
    const int q = from_root_ ? place.call.root : turned;
    const Block block = block_of(place.call, q, place.rank());
    take_part(place, q, block,
              part_of(block.from.size(), direct_elems(place), part % parts_of_row(place)), nullptr);
  }

  std::int64_t slot_parts(const ShmPlace& place) const override {
    return parts_of(longest_row(place.call), slot_elems(place));
  }
  void put(const ShmPlace& place, std::int64_t part) const override {
    const int r = place.rank();
    if (!by_rows_) {
      if (base_ == OpKind::kGather && place.is_root()) return;
      return place.put_part(block_of_own(place).from, slot_elems(place), part, place.slot(r, part));
    }
    for (int k = 1; k < place.size(); ++k) {
      const int q = (r + k) % place.size();
      place.put_part(block_of(place.call, r, q).from, slot_elems(place), part,
                     place.slot_row(r, part, q));
    }
  }
  void take(const ShmPlace& place, std::int64_t part) const override {
    const int r = place.rank();
    for (int k = 0; k < place.size(); ++k) {
      const int q = (r + k) % place.size();
      const Block block = block_of(place.call, q, r);
      take_part(place, q, block, part_of(block.from.size(), slot_elems(place), part),
                by_rows_ ? place.slot_row(q, part, r) : place.slot(q, part));
    }
  }

  std::uint64_t sent(const ShmPlace& place, bool) const override {
    std::int64_t elems = 0;
    for (int q = 0; q < place.size(); ++q) {
      if (q != place.rank()) elems += block_of(place.call, place.rank(), q).from.size();
    }
    return place.bytes(elems);
  }

 private:
  Block block_of(const ShmCall& call, int from, int to) const {
    switch (base_) {
      case OpKind::kAllToAll: return {{to * call.elems, (to + 1) * call.elems}, from * call.elems};
      case OpKind::kBroadcast: return from == call.root ? Block{{0, call.elems}} : Block{};
      case OpKind::kScatter: return from == call.root ? Block{row_of(call, to)} : Block{};
      case OpKind::kGather:
        if (to != call.root) return {};
        [[fallthrough]];
      case OpKind::kAllGather: {
        const Range row = row_of(call, from);
        return {{0, row.size()}, row.begin};
      }
      default: return {};
    }
  }
  int first_sender(const ShmPlace& place) const { return from_root_ ? place.call.root : 0; }
  int end_of_senders(const ShmPlace& place) const {
    return from_root_ ? place.call.root + 1 : place.size();
  }
  // Whether it holds of all ranks that have something for others.
  template <typename Property>
  bool all_senders(const ShmPlace& place, const Property& holds) const {
    for (int q = first_sender(place); q < end_of_senders(place); ++q) {
      const bool has = by_rows_ || block_of(place.call, q, place.call.root).from.size() > 0;
      if (has && !holds(q)) return false;
    }
    return true;
  }
  // Of a rank that has the same for all that get something.
  Block block_of_own(const ShmPlace& place) const {
    return block_of(place.call, place.rank(), place.call.root);
  }
  static std::int64_t direct_elems(const ShmPlace& place) { return place.elems_in(kDirectBytes); }
  static std::int64_t parts_of_row(const ShmPlace& place) {
    return parts_of(longest_row(place.call), direct_elems(place));
  }
  std::int64_t slot_elems(const ShmPlace& place) const {
    return place.elems_in(by_rows_ ? place.slot_row_bytes() : place.slot_bytes());
  }

  void write_to_root(const ShmPlace& place, std::int64_t part) const {
    const Block block = block_of_own(place);
    const Range range = part_of(block.from.size(), direct_elems(place), part);
    std::byte* to = place.out_of(place.call.root) + place.bytes(block.to + range.begin);
    const std::byte* from = place.call.in + place.bytes(range.begin);
    const std::size_t bytes = place.bytes(range.size());
    const Stores stores = stores_for(out_bytes(place.call, place.size()));
    if (place.is_root()) return keep_row(to, from, bytes, stores);
    copy_with(stores, to, from, bytes);
  }
  // `range` of rank q's block from where that one put it, or from its own tensor where that is
  // null.
  void take_part(const ShmPlace& place, int q, const Block& block, Range range,
                 const std::byte* from) const {
    if (range.size() <= 0) return;
    const std::size_t bytes = place.bytes(range.size());
    const std::size_t offset = place.bytes(block.from.begin + range.begin);
    std::byte* out = place.call.out + place.bytes(block.to + range.begin);
    const Stores stores = stores_for(out_bytes(place.call, place.size()));
    if (q == place.rank()) return keep_row(out, place.call.in + offset, bytes, stores);
    if (from != nullptr) return copy_with(stores, out, from, bytes);
    place.copy_in_of(q, offset, out, bytes, stores);
  }

  OpKind base_;
  bool from_root_;  // root alone has something for the others
  bool by_rows_;    // each rank gets a row of its own from every sender: a slot holds them all
};

}  // namespace

const ShmMoves& shm_movements(OpKind base) {
  static const Movements all[] = {Movements(OpKind::kBarrier),   Movements(OpKind::kBroadcast),
                                  Movements(OpKind::kScatter),   Movements(OpKind::kGather),
                                  Movements(OpKind::kAllGather), Movements(OpKind::kAllToAll)};
  switch (base) {
    case OpKind::kBroadcast: return all[1];
    case OpKind::kScatter: return all[2];
    case OpKind::kGather: return all[3];
    case OpKind::kAllGather: return all[4];
    case OpKind::kAllToAll: return all[5];
    default: return all[0];
  }
}

}  // namespace gradwire
