// What all communicators of one rank share whose ranks share an arena.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/shm/arena.h"
#include "gradwire/status.h"

namespace gradwire {

// Boards (shm_channel.h) lie in the share of the rank that made them, and must stay until the last
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
  const std::shared_ptr<shm::Arena>& shared_arena() const { return arena_; }

  bool crowded() const { return crowded_; }
  const std::vector<std::int64_t>& processes() const { return processes_; }
  // Requires a job rank whose host this is.
  int arena_rank(int job_rank) const;

  // Where a zeroed board for `ranks` lies; kOutOfMemory as Arena::take().
  Result<std::uint64_t> make(int ranks);

  // Bytes that went from this rank to others through memory.
  std::atomic<std::uint64_t>& total_bytes() { return total_bytes_; }

 private:
  struct Board {
    std::uint64_t offset;
    int ranks;
  };

  std::shared_ptr<shm::Arena> arena_;
  bool crowded_;
  std::vector<int> members_;
  std::vector<std::int64_t> processes_;
  std::mutex mutex_;
  std::vector<Board> made_;
  std::atomic<std::uint64_t> total_bytes_{0};
};

}  // namespace gradwire
