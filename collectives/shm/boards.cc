#include "collectives/shm/boards.h"

#include <algorithm>

#include "collectives/shm/channel.h"

namespace gradwire {

int ShmBoards::arena_rank(int job_rank) const {
  if (members_.empty()) return job_rank;
  return static_cast<int>(std::ranges::find(members_, job_rank) - members_.begin());
}

Result<std::uint64_t> ShmBoards::make(int ranks) {
  const std::lock_guard lock(mutex_);
  std::erase_if(made_, [&](const Board& board) {
    if (!ShmChannel::all_left(*arena_, board.offset, board.ranks)) return false;
    arena_->give_back(board.offset, ShmChannel::board_bytes(board.ranks));
    return true;
  });
  GW_ASSIGN(const std::uint64_t offset,
            arena_->take(ShmChannel::board_bytes(ranks), shm::Arena::Pages::kWhenTouched));
  made_.push_back({offset, ranks});
  return offset;
}

}  // namespace gradwire
