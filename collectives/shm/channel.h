// What the ranks of a communicator write for each other in an arena, and one rank's end of it.
//
//   board   = common:128 row[ranks][queues] places[queues][ranks]
//   row     = notice:64[2] progress:u64 gone:u32  written by its rank alone
//   notice  = arrival:u64 number:u64 descriptor  arrival n: the rank is in operation n as described
//   places  = small[2] slot[kSlots]
//   small   = a small operation's data, by parity of n
//   slot    = a part of a large one's
//
// Operations of one queue are numbered from 1 and run one after another; those of different queues
// run side by side. A rank enters operation n of a queue only when all have left operation n - 2,
// that is when all have entered n - 1; so two notices, and two places for small data, are enough.
// progress counts (n, step) upwards.
//
// Which queue an operation takes follows from what all ranks know alike about it. Where they do not
// agree about that, one waits in one queue for the other, who waits in another one: they find each
// other by the number of the operation in the group, which its notice has.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/forks.h"
#include "comm/shm/arena.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// What a call asks for, and algorithm_for() says, where collectives go through shared memory.
inline constexpr std::string_view kShmAlgorithm = "shm";

struct ShmCall {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t elems = 0;  // of the tensor, or of one row; of all rows where these have lengths
  int root = 0;
  Queue queue = Queue::kBulk;              // of the engine, once it is handed over
  std::vector<std::int64_t> lengths = {};  // *_v: of each rank's row, in elements
  // The operation's, among the group's collectives, from 1: of one that its kind and size lead to
  // a queue of its own. 0: of one whose place in its queue says all.
  std::uint64_t number = 0;
};

// Room that each rank has in a queue of a board.
struct ShmQueue {
  std::size_t small_bytes;  // of each of two places
  std::size_t slot_bytes;
};

// The queues of a board, and its ranks.
struct ShmLayout {
  std::vector<ShmQueue> queues;
  int ranks;

  // With slots so much smaller that the board takes at most half of `share` bytes, but of 32 KiB.
  static ShmLayout within(std::uint64_t share, std::vector<ShmQueue> queues, int ranks);
  std::size_t bytes() const;
  int channels() const { return ranks * static_cast<int>(queues.size()); }
};

// What must be equal on all ranks, and where a rank's tensors are.
struct ShmNotice {
  static constexpr std::uint64_t kPrivate = ~std::uint64_t{0};

  std::atomic<std::uint64_t> arrival;
  std::atomic<std::uint64_t> number;  // as ShmCall has it
  std::uint8_t kind;
  std::uint8_t dtype;
  std::uint8_t op;
  std::int32_t root;
  std::int64_t elems;
  std::uint64_t lengths;  // their hash
  std::uint64_t in;       // offsets in the arena, or kPrivate
  std::uint64_t out;
  std::uint64_t address;  // of `in` in its own process; 0: nobody else may read it there
};

// How the others' tensors can be had: through the board, by reading them where they are, or in the
// arena.
enum class ShmReach : std::uint8_t { kBoard, kReading, kShared };

// At the beginning of memory that several ranks use until each of them has left it.
struct ShmCommon {
  alignas(128) std::atomic<std::uint32_t> broken;
  std::atomic<std::int32_t> left;  // users that have gone

  void give_up() {
    broken.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  // A rank has given up: nobody may go on, since its memory may be gone for other uses.
  // False: what this rank has read until now was what the others had lent.
  bool is_broken() const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return broken.load(std::memory_order_relaxed) != 0;
  }
};

// Where a rank's tensors are: what it tells the others about them.
struct ShmTensors {
  std::uint64_t in = ShmNotice::kPrivate;
  std::uint64_t out = ShmNotice::kPrivate;
  std::uint64_t address = 0;
};

// How a rank looks for what others write before it hands its operation over. The first looks come
// one right after another, the others with pauses between. Where ranks share processors, the others
// need them in between.
class ShmLooks {
 public:
  // alone: looks without success of a rank with a processor of its own that does not keep it.
  ShmLooks(Waiting waiting, bool crowded, int alone, int pauses)
      : keeps_(waiting == Waiting::kSpin || waiting == Waiting::kYield),
        yields_(waiting == Waiting::kYield || (waiting == Waiting::kAdaptive && crowded)),
        most_(waiting == Waiting::kSleep ? 0
              : keeps_                   ? kPatient
              : yields_                  ? kCrowded
                                         : alone),
        pauses_(pauses) {}

  // The processor, while it waits.
  bool keeps() const { return keeps_; }
  int most() const { return most_; }
  // After look number `look`, from 0, which was without success.
  void pause(int look) const;

 private:
  static constexpr int kQuick = 4;
  // A rank that has yielded as often as there are others waits for one that sleeps.
  static constexpr int kCrowded = 48;
  // Then the engine goes on in the same way.
  static constexpr int kPatient = 20000;

  bool keeps_;
  bool yields_;
  int most_;
  int pauses_;
};

// Boards lie in the share of the rank that made them, and must stay until the last
// member has left: who that is, nobody waits to find out. So their maker looks when it needs the
// next one. Thread-safe.
class ShmBoards {
 public:
  // crowded: the host has more ranks of the job than processors. members: job ranks by arena rank;
  // none: they are the same. processes: their numbers by arena rank, if each may read the memory of
  // all others; else none.
  ShmBoards(std::shared_ptr<shm::Arena> arena, bool crowded, std::vector<int> members = {},
            std::vector<std::int64_t> processes = {})
      : arena_(std::move(arena)),
        crowded_(crowded),
        members_(std::move(members)),
        processes_(std::move(processes)) {}

  shm::Arena& arena() const { return *arena_; }

  bool crowded() const { return crowded_; }
  const std::vector<std::int64_t>& processes() const { return processes_; }
  // Requires a job rank whose host this is.
  int arena_rank(int job_rank) const;

  // Where zeroed bytes lie that begin with a ShmCommon, for so many users; kOutOfMemory as
  // Arena::take().
  Result<std::uint64_t> make(std::size_t bytes, int users);
  // So many users of that have left it.
  void leave(std::uint64_t offset, int users) {
    reinterpret_cast<ShmCommon*>(arena_->at(offset))->left.fetch_add(users);
  }

  // Operations of this rank that are handed over to the engine and have not ended.
  std::atomic<int>& under_way() { return under_way_; }
  // Bytes that went from this rank to others through memory; and what is added to them.
  std::atomic<std::uint64_t>& total_bytes() { return total_bytes_; }
  std::shared_ptr<std::atomic<std::uint64_t>> make_counter();
  std::uint64_t all_bytes();

 private:
  struct Board {
    std::uint64_t offset;
    std::size_t bytes;
    int users;
  };

  std::shared_ptr<shm::Arena> arena_;
  bool crowded_;
  std::vector<int> members_;
  std::vector<std::int64_t> processes_;
  std::mutex mutex_;
  std::vector<Board> made_;
  std::atomic<int> under_way_{0};
  std::atomic<std::uint64_t> total_bytes_{0};
  std::vector<std::shared_ptr<std::atomic<std::uint64_t>>> counters_;
};

// One queue of a board. Used by one thread at a time: the one that runs the queue's operation.
class ShmChannel {
 public:
  static constexpr int kSlots = 4;
  static constexpr int kMostRanks = 128;
  static constexpr std::uint32_t kLastStep = (1u << 24) - 1;  // of kStepBits

  // `board`: zeroed bytes of such a layout at that offset of the arena, equal on all members.
  // queue: which one. members: arena ranks by group rank.
  ShmChannel(std::shared_ptr<ShmBoards> boards, std::uint64_t board, const ShmLayout& layout,
             std::size_t queue, std::vector<int> members, int rank);
  // Leaves the board: nothing of it is touched any more.
  ~ShmChannel();
  ShmChannel(const ShmChannel&) = delete;
  ShmChannel& operator=(const ShmChannel&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  shm::Arena& arena() const { return boards_->arena(); }
  ShmBoards& boards() const { return *boards_; }
  bool crowded() const { return boards_->crowded(); }
  // Whether ranks may read each other's private memory, as all of them say.
  bool reads_processes() const { return !boards_->processes().empty(); }
  const ShmQueue& queue() const { return layout_.queues[queue_]; }
  // Of group rank q. Requires reads_processes().
  std::int64_t process_of(int q) const {
    return boards_->processes()[static_cast<std::size_t>(members_[static_cast<std::size_t>(q)])];
  }

  // This rank is in operation n. Requires that all have arrived at n - 1, and the caller's data in
  // small() if there are any. Full fence; wakes who sleeps if this was the last to arrive, or
  // somebody waits for this rank alone.
  void enter(std::uint64_t n, const ShmCall& call, const ShmTensors& tensors, bool awaited_alone);
  bool arrived(int q, std::uint64_t n) const {
    return row(q).notices[n % 2].arrival.load(std::memory_order_acquire) >= n;
  }
  // Requires arrived(q, n), and not to have left n.
  const ShmNotice& notice(int q, std::uint64_t n) const { return row(q).notices[n % 2]; }
  // Where rank q is in the group's operation `number`, which this rank awaits in this queue, in
  // another one; null where it is not.
  const ShmNotice* elsewhere(int q, std::uint64_t number) const;

  // This rank has done `step` of operation n. Full fence; wakes who sleeps if this was the last to.
  void publish(std::uint64_t n, std::uint32_t step);
  bool reached(int q, std::uint64_t n, std::uint32_t step) const {
    return row(q).progress.load(std::memory_order_acquire) >= mark(n, step);
  }

  // Sleeps at this rank's bell until it is rung or `until`, unless `met` says true once it lies
  // down.
  template <typename Condition>
  void sleep(const Condition& met, Deadline until) {
    shm::Bell& own = bell(rank_);
    const std::uint32_t seen = own.lie_down();
    if (!met()) own.sleep(seen, until);
    own.get_up();
  }

  std::byte* small(int q, std::uint64_t n) const {
    return places_of(q) + n % 2 * queue().small_bytes;
  }
  // This rank will enter n with so many bytes in small(): their lines, which the others have read,
  // begin to come back. Requires that all have arrived at n - 1.
  void expect_small(std::uint64_t n, std::size_t bytes) const;
  std::byte* slot(int q, std::int64_t index) const {
    return places_of(q) + 2 * queue().small_bytes +
           static_cast<std::size_t>(index % kSlots) * queue().slot_bytes;
  }

  // This rank starts no more operations, and that not because of a failure: then the others hear of
  // that instead. They hear it when those under way, which hold the channel, have ended.
  void close() { closes_ = true; }
  // Rank q has closed: what it has not done by now it never will.
  bool gone(int q) const { return row(q).gone.load(std::memory_order_acquire) != 0; }

  // As ShmCommon::is_broken().
  bool broken() const { return common_->is_broken(); }
  void give_up();

  // The number of the next operation to start, which its caller takes.
  std::uint64_t next = 1;
  // The number of the next operation to enter, the last one that used slots, and how many are
  // handed over and have not ended.
  std::uint64_t turn = 1;
  std::uint64_t last_in_slots = 0;
  // By OpKind: of the last one that all ranks saw.
  std::array<ShmReach, 32> reach_before{};
  std::atomic<int> handed_over{0};

 private:
  struct Row {
    struct alignas(64) Padded : ShmNotice {};
    Padded notices[2];
    alignas(128) std::atomic<std::uint64_t> progress;
    std::atomic<std::uint32_t> gone;
  };
  static_assert(sizeof(Row) == 256);
  friend struct ShmLayout;

  static constexpr int kStepBits = 24;
  static std::uint64_t mark(std::uint64_t n, std::uint32_t step) { return (n << kStepBits) | step; }

  Row& row(int q) const { return row(q, queue_); }
  Row& row(int q, std::size_t queue) const {
    return rows_[static_cast<std::size_t>(q) * layout_.queues.size() + queue];
  }
  std::byte* places_of(int q) const {
    return places_ + static_cast<std::size_t>(q) * place_bytes(queue());
  }
  static std::size_t place_bytes(const ShmQueue& queue) {
    return 2 * queue.small_bytes + kSlots * queue.slot_bytes;
  }
  shm::Bell& bell(int q) const { return arena().bell(members_[static_cast<std::size_t>(q)]); }
  bool anybody_asleep() const;
  void ring();
  void say_closed();

  ForkMark mark_;
  bool closes_ = false;
  std::shared_ptr<ShmBoards> boards_;
  ShmLayout layout_;
  std::size_t queue_;
  std::vector<int> members_;
  int rank_;
  ShmCommon* common_;
  Row* rows_;
  std::byte* places_;  // of the queue
};

}  // namespace gradwire
