// Ranks compare hosts, the first of each host makes an arena, the others open it, and only if all
// could is memory used.
#include "collectives/shm/setup.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/philox.h"
#include "base/text.h"
#include "collectives/shm/memory_path.h"
#include "comm/host.h"
#include "comm/shm/peer_memory.h"
#include "device/rank_device.h"

namespace gradwire {
namespace {

// By rank: a number for its host, and its node where these are given.
Result<Nodes> gather_hosts(Communicator& world) {
  std::uint64_t own = comm::host_number();
  const std::vector<int> nodes = world.nodes();
  if (!nodes.empty()) {
    own = mix64(own + static_cast<std::uint64_t>(nodes[static_cast<std::size_t>(world.rank())]));
  }
  GW_ASSIGN(const auto keys, gather_numbers(world, std::array{static_cast<std::int64_t>(own)}));
  std::vector<int> first;  // the first rank with the same key
  for (const std::int64_t key : keys) {
    first.push_back(static_cast<int>(std::ranges::find(keys, key) - keys.begin()));
  }
  return nodes_of(first);
}

// This rank's arena, null if it is alone on its host; and why there is to be none.
struct Opened {
  std::shared_ptr<shm::Arena> arena;
  std::string reason;
  std::vector<std::int64_t> processes = {};  // as ShmBoards has them
  bool messages = false;                     // as SharedHosts has it
};

void take(Opened& mine, Result<std::shared_ptr<shm::Arena>> arena) {
  if (arena.has_value()) {
    mine.arena = std::move(arena).value();
  } else {
    mine.reason = arena.error().message();
  }
}

// What a rank tells the others: where its arena is, if it has made one, and where they may try to
// read its memory.
constexpr std::size_t kTokenNumbers = 8;
using TokenNumbers = std::array<std::int64_t, kTokenNumbers>;

TokenNumbers numbers_of(const Opened& mine, const shm::ProcessIdentity& self) {
  shm::Arena::Token token;
  if (mine.arena) token = mine.arena->token();
  return {token.pid,
          token.fd,
          token.nonce,
          token.bytes,
          self.pid,
          static_cast<std::int64_t>(self.nonce_address),
          static_cast<std::int64_t>(self.nonce),
          device_of_rank(std::nullopt, 0).has_value() ? 1 : 0};
}

shm::ProcessIdentity process_in(const std::int64_t* numbers) {
  return {.nonce = static_cast<std::uint64_t>(numbers[6]),
          .nonce_address = static_cast<std::uint64_t>(numbers[5]),
          .pid = numbers[4]};
}

// What a rank says of the others' arena and memory.
enum Success : std::int64_t { kNothing = 0, kArena = 1, kArenaAndProcesses = 2 };

Result<Opened> open_arena(Communicator& world, const Nodes& hosts, std::size_t most_bytes) {
  const auto self = static_cast<std::size_t>(world.rank());
  const auto host = static_cast<std::size_t>(hosts.node_of[self]);
  const auto& local = hosts.ranks[host];
  const int count = static_cast<int>(local.size());
  const int place = hosts.place_of[self];
  Opened mine;
  if (place == 0 && count > 1) take(mine, shm::Arena::create(0, count, most_bytes));
  const shm::OwnNonce nonce;  // until all have read it, which the second gathering says
  GW_ASSIGN(const auto tokens, gather_numbers(world, numbers_of(mine, nonce.process())));
  const auto token_of = [&](int r) {
    return tokens.data() + kTokenNumbers * static_cast<std::size_t>(r);
  };
  const std::int64_t* maker = token_of(local[0]);
  if (place > 0 && maker[1] >= 0) {
    const shm::Arena::Token token{maker[0], maker[1], maker[2], maker[3]};
    take(mine, shm::Arena::open(token, place, count));
  }
  const bool good = count == 1 || mine.arena != nullptr;
  const bool reads =
      std::ranges::all_of(local, [&](int r) { return shm::can_read(process_in(token_of(r))); });
  const Success success = !good ? kNothing : reads ? kArenaAndProcesses : kArena;
  GW_ASSIGN(const auto successes, gather_numbers(world, std::array<std::int64_t, 1>{success}));
  if (mine.arena) mine.arena->close_door();
  if (std::ranges::all_of(local, [&](int r) {
        return successes[static_cast<std::size_t>(r)] == kArenaAndProcesses;
      })) {
    for (const int r : local) mine.processes.push_back(process_in(token_of(r)).pid);
    // Tensors on a device go as messages, and may meet others that are not.
    mine.messages = std::ranges::none_of(local, [&](int r) { return token_of(r)[7] != 0; });
  }
  const auto failed = std::ranges::find(successes, kNothing);
  if (failed == successes.end()) {
    mine.reason.clear();
    return mine;
  }
  mine.arena.reset();
  if (mine.reason.empty()) {
    mine.reason =
        format("rank %d cannot share memory", static_cast<int>(failed - successes.begin()));
  }
  return mine;
}

std::unique_ptr<CallPath> without(Group& world, const std::string& why) {
  world.set_note("messages alone: " + why);
  return nullptr;
}

std::size_t most_on_one(const Nodes& hosts) {
  std::size_t most = 0;
  for (const auto& ranks : hosts.ranks) most = std::max(most, ranks.size());
  return most;
}

}  // namespace

Result<std::unique_ptr<CallPath>> share_memory(const GroupMembers& members,
                                               std::size_t most_bytes) {
  Group& world = members.group;
  const int size = world.size();
  if (size == 1) return std::unique_ptr<CallPath>();
  GW_ASSIGN(const Nodes hosts, gather_hosts(members.communicator));
  const std::size_t most = most_on_one(hosts);
  if (most == 1) return without(world, format("%d hosts", size));
  if (most > static_cast<std::size_t>(ShmChannel::kMostRanks)) {
    return without(world,
                   format("%zu ranks (at most %d share memory)", most, ShmChannel::kMostRanks));
  }
  GW_ASSIGN(Opened mine, open_arena(members.communicator, hosts, most_bytes));
  if (!mine.reason.empty()) return without(world, mine.reason);
  const auto self = static_cast<std::size_t>(world.rank());
  const auto& local = hosts.ranks[static_cast<std::size_t>(hosts.node_of[self])];
  auto shared = std::make_shared<SharedHosts>(SharedHosts{{}, nullptr, most_bytes, mine.messages});
  for (int r = 0; r < size; ++r) {
    const auto job_rank = static_cast<std::size_t>(world.job_rank(r));
    shared->host_of.resize(std::max(shared->host_of.size(), job_rank + 1), -1);
    shared->host_of[job_rank] = hosts.node_of[static_cast<std::size_t>(r)];
  }
  if (mine.arena) {
    world.engine()->listen_to(
        std::shared_ptr<shm::Bell>(mine.arena, &mine.arena->bell(hosts.place_of[self])));
    shared->boards =
        std::make_shared<ShmBoards>(std::move(mine.arena), world.engine()->crowded(),
                                    world.job_ranks_of(local), std::move(mine.processes));
  }
  return path_over_hosts(members, shared);
}

Result<std::unique_ptr<CallPath>> path_over_hosts(const GroupMembers& members,
                                                  const std::shared_ptr<const SharedHosts>& hosts) {
  const Group& group = members.group;
  std::vector<int> keys;
  for (int r = 0; r < group.size(); ++r) {
    keys.push_back(hosts->host_of[static_cast<std::size_t>(group.job_rank(r))]);
  }
  const Nodes here = nodes_of(keys);
  if (most_on_one(here) == 1) return std::unique_ptr<CallPath>();
  if (here.ranks.size() == 1) return MemoryPath::create(members, hosts);
  return two_level_path(members, hosts, here);
}

}  // namespace gradwire
