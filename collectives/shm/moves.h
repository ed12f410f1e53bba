// What each collective does in shared memory: which bytes go where. When, is ShmExecution's.
//
// There are three ways, and all ranks take the same:
//   small   everybody puts its data on the board and, once all have, takes what it needs
//   direct  tensors lie in the arena: the others' are read, and written, where they are. What is
//           only copied may lie in the others' own memory, too, where that may be read
//   slots   tensors lie elsewhere: part by part through slots of the board that stay in the caches.
//           Put part i; combine part i - 1, where something is to be combined for others; take the
//           part before
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collectives/shm/channel.h"
#include "device/fold.h"
#include "gradwire/schedule.h"

namespace gradwire {

// Operation n of a channel.
struct ShmPlace {
  const ShmCall& call;
  const ShmChannel& channel;
  std::uint64_t n;
  // Set to a rank whose memory could not be read: it has ended.
  int* unread = nullptr;

  int size() const { return channel.size(); }
  int rank() const { return channel.rank(); }
  bool is_root() const { return rank() == call.root; }
  std::size_t width() const { return size_of(call.dtype); }
  std::size_t bytes(std::int64_t elems) const { return static_cast<std::size_t>(elems) * width(); }
  std::int64_t elems_in(std::size_t bytes) const {
    return static_cast<std::int64_t>(bytes / width());
  }
  std::byte* small(int q) const { return channel.small(q, n); }
  std::byte* slot(int q, std::int64_t part) const { return channel.slot(q, part); }
  std::size_t slot_bytes() const { return channel.queue().slot_bytes; }
  // A slot that holds the same part of every rank's row has so many bytes for each.
  std::size_t slot_row_bytes() const {
    return slot_bytes() / static_cast<std::size_t>(size()) / 64 * 64;
  }
  std::byte* slot_row(int q, std::int64_t part, int r) const {
    return slot(q, part) + slot_row_bytes() * static_cast<std::size_t>(r);
  }
  bool shares_in(int q) const { return channel.notice(q, n).in != ShmNotice::kPrivate; }
  bool shares_out(int q) const { return channel.notice(q, n).out != ShmNotice::kPrivate; }
  bool all_share_in() const {
    for (int q = 0; q < size(); ++q) {
      if (!shares_in(q)) return false;
    }
    return true;
  }
  // Whether copy_in_of() can get at it.
  bool reaches_in(int q) const { return shares_in(q) || channel.notice(q, n).address != 0; }
  // bytes of rank q's `in` from `offset` on, wherever it lies.
  void copy_in_of(int q, std::size_t offset, std::byte* to, std::size_t bytes, Stores stores) const;
  // Part `part`, of `each` elements, of these elements of this rank's `in`.
  void put_part(Range of, std::int64_t each, std::int64_t part, std::byte* to) const;
  std::byte* in_of(int q) const { return channel.arena().at(channel.notice(q, n).in); }
  std::byte* out_of(int q) const { return channel.arena().at(channel.notice(q, n).out); }
};

// Without state: one object serves all operations of its kinds.
class ShmMoves {
 public:
  virtual ~ShmMoves() = default;

  // Bytes that the tensors of one rank span at most, in and out, equal on all ranks. Small: what
  // each rank puts at most.
  virtual std::size_t in_bytes(const ShmCall& call, int size) const = 0;
  virtual std::size_t out_bytes(const ShmCall& call, int size) const = 0;

  // Small: up to so many bytes. before: as the last operation of this kind was. The direct way has
  // two waits, but copies once.
  virtual std::size_t small_limit(int size, ShmReach before) const;
  virtual void put_small(const ShmPlace& place, std::byte* own) const {
    copy_with(Stores::kCached, own, place.call.in, in_bytes(place.call, place.size()));
  }
  virtual void take_small(const ShmPlace& place) const = 0;
  // Who waits for whom before take_small.
  enum class Awaited : std::uint8_t {
    kAll,
    kRootAlone,  // only root has something to put
    kByRoot,     // only root takes
  };
  virtual Awaited awaited(const ShmCall&) const { return Awaited::kAll; }

  // Direct: whether the tensors that matter are shared, or are best read where they are; how many
  // parts this rank has to do.
  virtual bool are_shared(const ShmPlace& place) const = 0;
  virtual bool are_readable(const ShmPlace&) const { return false; }
  ShmReach reach(const ShmPlace& place) const {
    if (are_shared(place)) return ShmReach::kShared;
    return are_readable(place) ? ShmReach::kReading : ShmReach::kBoard;
  }
  virtual std::int64_t direct_parts(const ShmPlace& place) const = 0;
  virtual void direct(const ShmPlace& place, std::int64_t part) const = 0;

  // Slots: how many parts, equal on all ranks.
  virtual std::int64_t slot_parts(const ShmPlace& place) const = 0;
  virtual void put(const ShmPlace& place, std::int64_t part) const = 0;
  virtual bool combines() const { return false; }
  virtual void combine(const ShmPlace&, std::int64_t) const {}
  virtual void take(const ShmPlace& place, std::int64_t part) const = 0;

  // Bytes that other ranks get from this one.
  virtual std::uint64_t sent(const ShmPlace& place, bool small) const = 0;
};

const ShmMoves& shm_moves_of(OpKind kind);
const ShmMoves& shm_movements(OpKind base);  // all that only copies; base: as OpTraits has it
const ShmMoves& shm_all_reduce();            // and reduce
const ShmMoves& shm_own_fold();              // reduce_scatter(_v) and exclusive_scan

// From so many bytes on, results leave the caches alone.
inline constexpr std::size_t kStreamingBytes = 8 << 20;
inline Stores stores_for(std::size_t bytes) {
  return bytes >= kStreamingBytes ? Stores::kStreaming : Stores::kCached;
}

// A rank looks around between parts of about so many bytes.
inline constexpr std::size_t kDirectBytes = 256 << 10;

inline std::int64_t parts_of(std::int64_t elems, std::int64_t each) {
  return (elems + each - 1) / each;
}
inline Range part_of(std::int64_t elems, std::int64_t each, std::int64_t part) {
  const std::int64_t begin = part * each;
  return {begin, begin + each < elems ? begin + each : elems};
}

// Elements before rank q's row among rows of call.elems, or of call.lengths; q = size: of all rows.
inline std::int64_t begin_of_row(const ShmCall& call, int q) {
  if (call.lengths.empty()) return q * call.elems;
  std::int64_t sum = 0;
  for (int i = 0; i < q; ++i) sum += call.lengths[static_cast<std::size_t>(i)];
  return sum;
}
inline Range row_of(const ShmCall& call, int q) {
  const std::int64_t begin = begin_of_row(call, q);
  const auto& lengths = call.lengths;
  return {begin, begin + (lengths.empty() ? call.elems : lengths[static_cast<std::size_t>(q)])};
}
inline std::int64_t longest_row(const ShmCall& call) {
  return call.lengths.empty() ? call.elems : *std::ranges::max_element(call.lengths);
}

}  // namespace gradwire
