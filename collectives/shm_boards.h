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
  // crowded: the job has more ranks than processors.
  ShmBoards(std::shared_ptr<shm::Arena> arena, bool crowded)
      : arena_(std::move(arena)), crowded_(crowded) {}

  shm::Arena& arena() const { return *arena_; }
  const std::shared_ptr<shm::Arena>& shared_arena() const { return arena_; }

  bool crowded() const { return crowded_; }

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
  std::mutex mutex_;
  std::vector<Board> made_;
  std::atomic<std::uint64_t> total_bytes_{0};
};

}  // namespace gradwire
