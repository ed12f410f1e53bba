#include "collectives/shm/channel.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace gradwire {

void ShmLooks::pause(int look) const {
  if (yields_) {
    sched_yield();
    return;
  }
  for (int i = 0; look >= kQuick && i < pauses_; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

int ShmBoards::arena_rank(int job_rank) const {
  if (members_.empty()) return job_rank;
  return static_cast<int>(std::ranges::find(members_, job_rank) - members_.begin());
}

Result<std::uint64_t> ShmBoards::make(std::size_t bytes, int users) {
  const std::lock_guard lock(mutex_);
  std::erase_if(made_, [&](const Board& board) {
    const auto* common = reinterpret_cast<const ShmCommon*>(arena_->at(board.offset));
    if (common->left.load(std::memory_order_acquire) < board.users) return false;
    arena_->give_back(board.offset, board.bytes);
    return true;
  });
  GW_ASSIGN(const std::uint64_t offset, arena_->take(bytes, shm::Arena::Pages::kWhenTouched));
  made_.push_back({offset, bytes, users});
  return offset;
}

std::shared_ptr<std::atomic<std::uint64_t>> ShmBoards::make_counter() {
  const std::lock_guard lock(mutex_);
  return counters_.emplace_back(std::make_shared<std::atomic<std::uint64_t>>(0));
}

// Those that are nobody's any more become one.
std::uint64_t ShmBoards::all_bytes() {
  const std::lock_guard lock(mutex_);
  std::uint64_t all = 0;
  std::erase_if(counters_, [&](const auto& counter) {
    const bool unused = counter.use_count() == 1;
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint64_t bytes = counter->load(std::memory_order_relaxed);
    if (unused) total_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    all += unused ? 0 : bytes;
    return unused;
  });
  return all + total_bytes_.load(std::memory_order_relaxed);
}

ShmLayout ShmLayout::within(std::uint64_t share, std::vector<ShmQueue> queues, int ranks) {
  ShmLayout layout{std::move(queues), ranks};
  for (std::size_t most = 512 << 10; most >= 32 << 10 && layout.bytes() > share / 2; most /= 2) {
    for (ShmQueue& queue : layout.queues) queue.slot_bytes = std::min(queue.slot_bytes, most);
  }
  return layout;
}

std::size_t ShmLayout::bytes() const {
  std::size_t each = queues.size() * sizeof(ShmChannel::Row);
  for (const ShmQueue& queue : queues) each += ShmChannel::place_bytes(queue);
  return sizeof(ShmCommon) + static_cast<std::size_t>(ranks) * each;
}

ShmChannel::ShmChannel(std::shared_ptr<ShmBoards> boards, std::uint64_t board,
                       const ShmLayout& layout, std::size_t queue, std::vector<int> members,
                       int rank)
    : boards_(std::move(boards)),
      layout_(layout),
      queue_(queue),
      members_(std::move(members)),
      rank_(rank) {
  const auto count = static_cast<std::size_t>(size());
  std::byte* at = arena().at(board);
  common_ = reinterpret_cast<ShmCommon*>(at);
  at += sizeof(ShmCommon);
  rows_ = reinterpret_cast<Row*>(at);
  places_ = at + count * layout.queues.size() * sizeof(Row);
  for (const ShmQueue& before : std::span(layout.queues).first(queue))
    places_ += count * place_bytes(before);
}

ShmChannel::~ShmChannel() {
  if (mark_.in_child()) return;
  if (closes_) say_closed();
  common_->left.fetch_add(1, std::memory_order_release);
}

void ShmChannel::say_closed() {
  row(rank_).gone.store(1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  ring();
}

void ShmChannel::enter(std::uint64_t n, const ShmCall& call, const ShmTensors& tensors,
                       bool awaited_alone) {
  ShmNotice& own = row(rank_).notices[n % 2];
  own.kind = static_cast<std::uint8_t>(call.kind);
  own.dtype = static_cast<std::uint8_t>(call.dtype);
  own.op = static_cast<std::uint8_t>(call.op);
  own.root = call.root;
  own.elems = call.elems;
  own.lengths = call.lengths.empty() ? 0 : hash_bytes(std::as_bytes(std::span(call.lengths)));
  own.in = tensors.in;
  own.out = tensors.out;
  own.address = tensors.address;
  own.number.store(call.number, std::memory_order_release);
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
  row(rank_).progress.store(mark(n, step), std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!anybody_asleep()) return;
  for (int q = 0; q < size(); ++q) {
    if (!reached(q, n, step)) return;
  }
  ring();
}

// That rank waits there for this one, so the notice stays.
const ShmNotice* ShmChannel::elsewhere(int q, std::uint64_t number) const {
  for (std::size_t queue = 0; queue < layout_.queues.size() && number != 0; ++queue) {
    for (const ShmNotice& notice : row(q, queue).notices) {
      if (queue == queue_ || notice.number.load(std::memory_order_acquire) != number) continue;
      return &notice;
    }
  }
  return nullptr;
}

void ShmChannel::expect_small(std::uint64_t n, std::size_t bytes) const {
  constexpr std::size_t kMost = 8 << 10;  // more would not be there in time
  __builtin_prefetch(&row(rank_).notices[n % 2], 1);
  const std::byte* place = small(rank_, n);
  for (std::size_t at = 0; at < bytes && at < kMost; at += 64) __builtin_prefetch(place + at, 1);
}

void ShmChannel::give_up() {
  common_->give_up();
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
