// How ranks come to share memory: they compare hosts, rank 0 makes an arena, the others open it,
// and only if all could is it used.
#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "collectives/shm_communicator.h"
#include "comm/shm/host.h"

namespace gradwire {
namespace {

using Numbers = std::vector<std::int64_t>;

Result<Numbers> gather(Communicator& world, std::span<const std::int64_t> own) {
  Numbers all(static_cast<std::size_t>(world.size()) * own.size());
  GW_ASSIGN(Work work, world.all_gather(const_view_of(own), view_of(std::span(all))));
  GW_TRY(work.wait());
  return all;
}

Result<Numbers> gather(Communicator& world, std::int64_t own) {
  return gather(world, std::span<const std::int64_t>(&own, 1));
}

// Whether the ranks are more than the processors that they may use together: each may be bound to
// some of its own.
Result<bool> find_crowded(Communicator& world) {
  const auto own = shm::usable_processors();
  GW_ASSIGN(const Numbers all, gather(world, own));
  shm::Processors together{};
  for (std::size_t i = 0; i < all.size(); ++i) together[i % own.size()] |= all[i];
  int count = 0;
  for (const std::int64_t word : together) count += std::popcount(static_cast<std::uint64_t>(word));
  return world.size() > count;
}

// Null and why where this rank has no arena.
struct Opened {
  std::shared_ptr<shm::Arena> arena;
  std::string reason;
};

Opened opened(Result<std::shared_ptr<shm::Arena>> arena) {
  if (!arena.has_value()) return {nullptr, std::string(arena.error().message())};
  return {std::move(arena).value(), ""};
}

Result<Opened> open_arena(Communicator& world, std::size_t most_bytes) {
  Opened mine;
  Numbers numbers{0, -1, 0, 0};
  if (world.rank() == 0) {
    mine = opened(shm::Arena::create(0, world.size(), most_bytes));
    if (mine.arena) {
      const shm::Arena::Token token = mine.arena->token();
      numbers = {token.pid, token.fd, token.nonce, token.bytes};
    }
  }
  GW_ASSIGN(Work work, world.broadcast(view_of(std::span(numbers)), 0));
  GW_TRY(work.wait());
  if (world.rank() != 0 && numbers[1] >= 0) {
    const shm::Arena::Token token{numbers[0], numbers[1], numbers[2], numbers[3]};
    mine = opened(shm::Arena::open(token, world.rank(), world.size()));
  }
  GW_ASSIGN(const auto successes, gather(world, mine.arena ? 1 : 0));
  if (mine.arena) mine.arena->close_door();
  const auto failed = std::ranges::find(successes, 0);
  if (failed == successes.end()) return mine;
  mine.arena.reset();
  if (mine.reason.empty()) {
    mine.reason =
        format("rank %d cannot share memory", static_cast<int>(failed - successes.begin()));
  }
  return mine;
}

std::unique_ptr<Communicator> without(std::unique_ptr<GroupCommunicator> world,
                                      const std::string& why) {
  world->set_note("messages alone: " + why);
  return world;
}

}  // namespace

Result<std::unique_ptr<Communicator>> share_memory(std::unique_ptr<GroupCommunicator> world,
                                                   std::size_t most_bytes) {
  const int size = world->size();
  if (size == 1) return std::unique_ptr<Communicator>(std::move(world));
  if (size > ShmChannel::kMostRanks) {
    return without(std::move(world),
                   format("%d ranks (at most %d share memory)", size, ShmChannel::kMostRanks));
  }
  const auto host = static_cast<std::int64_t>(shm::hash_of_host(shm::host_identity()));
  GW_ASSIGN(auto hosts, gather(*world, host));
  std::ranges::sort(hosts);
  const auto different = std::unique(hosts.begin(), hosts.end()) - hosts.begin();
  if (different > 1)
    return without(std::move(world), format("%d hosts", static_cast<int>(different)));
  GW_ASSIGN(Opened mine, open_arena(*world, most_bytes));
  if (mine.arena == nullptr) return without(std::move(world), mine.reason);
  world->engine()->listen_to(
      std::shared_ptr<shm::Bell>(mine.arena, &mine.arena->bell(world->rank())));
  GW_ASSIGN(const bool crowded, find_crowded(*world));
  auto boards = std::make_shared<ShmBoards>(std::move(mine.arena), crowded);
  return ShmCommunicator::create(std::move(world), std::move(boards));
}

}  // namespace gradwire
