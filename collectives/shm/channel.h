// What the ranks of a communicator write for each other in an arena, and one rank's end of it.
//
//   board   = common:128 lane[ranks] small[ranks][2] slots[ranks][kSlots]
//   lane    = notice:64[2] progress:u64 gone:u32  written by its rank alone
//   notice  = arrival:u64 descriptor             arrival n: the rank is in operation n as described
//   small   = byte[kSmallBytes]                  a small operation's data, by parity of n
//   slot    = byte[kSlotBytes]                   a part of a large one's
//
// Operations are numbered from 1 and run one after another. A rank enters operation n only when all
// have left operation n - 2, that is when all have entered n - 1; so two notices, and two places
// for small data, are enough. progress counts (n, step) upwards.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/forks.h"
#include "collectives/shm/boards.h"
#include "collectives/shm/call.h"
#include "gradwire/status.h"

namespace gradwire {

// What must be equal on all ranks, and where a rank's tensors are.
struct ShmNotice {
  static constexpr std::uint64_t kPrivate = ~std::uint64_t{0};

  std::atomic<std::uint64_t> arrival;
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

// Where a rank's tensors are: what it tells the others about them.
struct ShmTensors {
  std::uint64_t in = ShmNotice::kPrivate;
  std::uint64_t out = ShmNotice::kPrivate;
  std::uint64_t address = 0;
};

// Used by one thread at a time: whoever runs the communicator's operation.
class ShmChannel {
 public:
  static constexpr std::size_t kSmallBytes = 32 << 10;
  static constexpr std::size_t kSlotBytes = 512 << 10;
  static constexpr int kSlots = 4;
  static constexpr int kMostRanks = 128;
  static constexpr std::uint32_t kLastStep = (1u << 24) - 1;  // of kStepBits

  static std::size_t board_bytes(int ranks);
  // `board`: zeroed board_bytes(size) at that offset of the arena, equal on all members. members:
  // arena ranks by group rank.
  ShmChannel(std::shared_ptr<ShmBoards> boards, std::uint64_t board, std::vector<int> members,
             int rank);
  // Leaves the board: nothing of it is touched any more.
  ~ShmChannel();
  ShmChannel(const ShmChannel&) = delete;
  ShmChannel& operator=(const ShmChannel&) = delete;
  static bool all_left(const shm::Arena& arena, std::uint64_t board, int ranks);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  shm::Arena& arena() const { return boards_->arena(); }
  ShmBoards& boards() const { return *boards_; }
  bool crowded() const { return boards_->crowded(); }
  // Whether ranks may read each other's private memory, as all of them say.
  bool reads_processes() const { return !boards_->processes().empty(); }
  // Of group rank q. Requires reads_processes().
  std::int64_t process_of(int q) const {
    return boards_->processes()[static_cast<std::size_t>(members_[static_cast<std::size_t>(q)])];
  }

  // This rank is in operation n. Requires that all have arrived at n - 1, and the caller's data in
  // small() if there are any. Full fence; wakes who sleeps if this was the last to arrive, or
  // somebody waits for this rank alone.
  void enter(std::uint64_t n, const ShmCall& call, const ShmTensors& tensors, bool awaited_alone);
  bool arrived(int q, std::uint64_t n) const {
    return lane(q).notices[n % 2].arrival.load(std::memory_order_acquire) >= n;
  }
  // Requires arrived(q, n), and not to have left n.
  const ShmNotice& notice(int q, std::uint64_t n) const { return lane(q).notices[n % 2]; }

  // This rank has done `step` of operation n. Full fence; wakes who sleeps if this was the last to.
  void publish(std::uint64_t n, std::uint32_t step);
  bool reached(int q, std::uint64_t n, std::uint32_t step) const {
    return lane(q).progress.load(std::memory_order_acquire) >= mark(n, step);
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

  std::byte* small(int q, std::uint64_t n) const;
  // This rank will enter n with so many bytes in small(): their lines, which the others have read,
  // begin to come back. Requires that all have arrived at n - 1.
  void expect_small(std::uint64_t n, std::size_t bytes) const;
  std::byte* slot(int q, int index) const;

  // This rank starts no more operations, and that not because of a failure: then the others hear of
  // that instead. They hear it when those under way, which hold the channel, have ended.
  void close() { closes_ = true; }
  // Rank q has closed: what it has not done by now it never will.
  bool gone(int q) const { return lane(q).gone.load(std::memory_order_acquire) != 0; }

  // A rank has given up: nobody may go on, since its memory may be gone for other uses.
  // False: what this rank has read until now was what the others had lent.
  bool broken() const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return common_->broken.load(std::memory_order_relaxed) != 0;
  }
  void give_up();

  // The number of the next operation to enter, the last one that used slots, and how many are
  // handed over and have not ended.
  std::uint64_t turn = 1;
  std::uint64_t last_in_slots = 0;
  // By OpKind: of the last one that all ranks saw.
  std::array<ShmReach, 32> reach_before{};
  std::atomic<int> handed_over{0};

 private:
  struct Lane {
    struct alignas(64) Padded : ShmNotice {};
    Padded notices[2];
    alignas(128) std::atomic<std::uint64_t> progress;
    std::atomic<std::uint32_t> gone;
  };
  static_assert(sizeof(Lane) == 256);
  struct Common {
    alignas(128) std::atomic<std::uint32_t> broken;
    std::atomic<std::int32_t> left;  // members that have gone
  };

  static constexpr int kStepBits = 24;
  static std::uint64_t mark(std::uint64_t n, std::uint32_t step) { return (n << kStepBits) | step; }

  Lane& lane(int q) const { return lanes_[q]; }
  shm::Bell& bell(int q) const { return arena().bell(members_[static_cast<std::size_t>(q)]); }
  bool anybody_asleep() const;
  void ring();
  void say_closed();

  ForkMark mark_;
  bool closes_ = false;
  std::shared_ptr<ShmBoards> boards_;
  std::vector<int> members_;
  int rank_;
  Common* common_;
  Lane* lanes_;
  std::byte* small_;
  std::byte* slots_;
};

}  // namespace gradwire
