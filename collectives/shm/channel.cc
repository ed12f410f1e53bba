#include "collectives/shm/channel.h"

#include <utility>

#include "base/hash.h"

namespace gradwire {

std::size_t ShmChannel::board_bytes(int ranks) {
  return sizeof(Common) +
         static_cast<std::size_t>(ranks) * (sizeof(Lane) + 2 * kSmallBytes + kSlots * kSlotBytes);
}

ShmChannel::ShmChannel(std::shared_ptr<ShmBoards> boards, std::uint64_t board,
                       std::vector<int> members, int rank)
    : boards_(std::move(boards)), members_(std::move(members)), rank_(rank) {
  const auto count = static_cast<std::size_t>(size());
  std::byte* at = arena().at(board);
  common_ = reinterpret_cast<Common*>(at);
  at += sizeof(Common);
  lanes_ = reinterpret_cast<Lane*>(at);
  at += count * sizeof(Lane);
  small_ = at;
  slots_ = at + count * 2 * kSmallBytes;
}

ShmChannel::~ShmChannel() {
  if (mark_.in_child()) return;
  if (closes_) say_closed();
  common_->left.fetch_add(1, std::memory_order_release);
}

void ShmChannel::say_closed() {
  lane(rank_).gone.store(1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  ring();
}

bool ShmChannel::all_left(const shm::Arena& arena, std::uint64_t board, int ranks) {
  const auto* common = reinterpret_cast<const Common*>(arena.at(board));
  return common->left.load(std::memory_order_acquire) == ranks;
}

void ShmChannel::enter(std::uint64_t n, const ShmCall& call, const ShmTensors& tensors,
                       bool awaited_alone) {
  ShmNotice& own = lane(rank_).notices[n % 2];
  own.kind = static_cast<std::uint8_t>(call.kind);
  own.dtype = static_cast<std::uint8_t>(call.dtype);
  own.op = static_cast<std::uint8_t>(call.op);
  own.root = call.root;
  own.elems = call.elems;
  own.lengths = call.lengths.empty() ? 0 : hash_bytes(std::as_bytes(std::span(call.lengths)));
  own.in = tensors.in;
  own.out = tensors.out;
  own.address = tensors.address;
  own.arrival.store(n, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!anybody_asleep()) return;
  // Of the ranks that arrive last at the same time, one at least sees all others behind its fence.
  for (int q = 0; q < size() && !awaited_alone; ++q) {
    if (!arrived(q, n)) return;
  }
  ring();
}

void ShmChannel::publish(std::uint64_t n, std::uint32_t step) {
  lane(rank_).progress.store(mark(n, step), std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!anybody_asleep()) return;
  for (int q = 0; q < size(); ++q) {
    if (!reached(q, n, step)) return;
  }
  ring();
}

std::byte* ShmChannel::small(int q, std::uint64_t n) const {
  return small_ + (static_cast<std::size_t>(q) * 2 + n % 2) * kSmallBytes;
}

void ShmChannel::expect_small(std::uint64_t n, std::size_t bytes) const {
  constexpr std::size_t kMost = 8 << 10;  // more would not be there in time
  __builtin_prefetch(&lane(rank_).notices[n % 2], 1);
  const std::byte* place = small(rank_, n);
  for (std::size_t at = 0; at < bytes && at < kMost; at += 64) __builtin_prefetch(place + at, 1);
}

std::byte* ShmChannel::slot(int q, int index) const {
  return slots_ +
         (static_cast<std::size_t>(q) * kSlots + static_cast<std::size_t>(index % kSlots)) *
             kSlotBytes;
}

void ShmChannel::give_up() {
  common_->broken.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  arena().retire();
  ring();
}

bool ShmChannel::anybody_asleep() const {
  for (int q = 0; q < size(); ++q) {
    if (q != rank_ && bell(q).anybody_asleep()) return true;
  }
  return false;
}

void ShmChannel::ring() {
  for (int q = 0; q < size(); ++q) {
    if (q != rank_) bell(q).ring_if_asleep();
  }
}

}  // namespace gradwire
