// Elements are never simulated one by one. Since a schedule's ranges are cells, one symbol stands
// for all elements of a cell: "elements `origin`... of the logical input, contributions of ranks 2,
// 0, 1 in that order". A million elements cost as much as ten.
#include "collectives/checker.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

using Op = Step::Op;

// What the elements of one cell hold.
struct Symbol {
  std::int64_t origin = 0;      // index of the first one in its contributors' input
  std::vector<int> ranks = {};  // contributions, in the order in which they were combined
  bool left_fold = true;        // each was added to all before it
  int finished = 0;
};

struct Message {
  std::int64_t elems = 0;
  Symbol symbol = {};
  std::vector<bool> heard = {};
};

// The cells of one buffer that have been written, and who wrote them.
struct Memory {
  std::int64_t elems = 0;
  bool given = false;  // holds the rank's own contribution from the start
  int rank = 0;
  std::map<std::int64_t, std::pair<std::int64_t, Symbol>> cells = {};  // by begin: end and contents

  // The cells' rule: an overlap with any cell but this very one is an error.
  Status admit(Range range) const {
    if (range.begin < 0 || range.end < range.begin || range.end > elems) {
      return {Code::kInternal, format("outside the buffer of %lld", static_cast<long long>(elems))};
    }
    if (range.size() == 0) return {};
    auto next = cells.upper_bound(range.begin);
    const bool right = next != cells.end() && next->first < range.end;
    bool left = false;
    if (next != cells.begin()) {
      const auto& [begin, cell] = *std::prev(next);
      left = begin == range.begin ? cell.first != range.end : cell.first > range.begin;
    }
    if (left || right) return {Code::kInternal, "overlaps another cell without being it"};
    return {};
  }

  Result<Symbol> read(Range range) {
    GW_TRY(admit(range));
    if (range.size() == 0) return Symbol{};
    const auto found = cells.find(range.begin);
    if (found != cells.end()) return found->second.second;
    if (!given) return Status(Code::kInternal, "read before it was written");
    Symbol own{.origin = range.begin, .ranks = {rank}};
    cells[range.begin] = {range.end, own};
    return own;
  }

  Status write(Range range, Symbol symbol) {
    GW_TRY(admit(range));
    if (range.size() > 0) cells[range.begin] = {range.end, std::move(symbol)};
    return {};
  }
};

Status combine(Symbol& into, const Symbol& from) {
  if (into.origin != from.origin) return {Code::kInternal, "combines different elements"};
  if (into.finished + from.finished > 0) return {Code::kInternal, "combines a finished reduction"};
  into.left_fold = into.left_fold && from.ranks.size() == 1;
  into.ranks.insert(into.ranks.end(), from.ranks.begin(), from.ranks.end());
  return {};
}

// One rank of the simulation.
struct Player {
  const Schedule* schedule = nullptr;
  std::array<Memory, 3> memory;
  std::vector<bool> heard = {};
  std::size_t round = 0;
  bool sent = false;         // the round's messages are out
  std::size_t received = 0;  // steps of the round whose message has arrived, in order
  ScheduleCost cost;

  Memory& of(const Place& place) {
    if (schedule->in_place && place.buffer == BufferId::kIn) return memory[1];
    return memory[static_cast<std::size_t>(place.buffer)];
  }
  bool done() const { return round == schedule->rounds.size(); }
};

class Simulation {
 public:
  explicit Simulation(std::span<const Schedule> schedules)
      : size_(schedules.size()), players_(size_), queues_(size_ * size_) {
    for (std::size_t r = 0; r < size_; ++r) {
      const Schedule& schedule = schedules[r];
      Player& player = players_[r];
      player.schedule = &schedule;
      const int rank = static_cast<int>(r);
      player.memory[0] = {schedule.in_elems, true, rank, {}};
      player.memory[1] = {schedule.out_elems, schedule.in_place, rank, {}};
      player.memory[2] = {schedule.scratch_elems, false, rank, {}};
      player.heard.assign(size_, false);
      player.heard[r] = true;
      player.cost.rounds = static_cast<int>(schedule.rounds.size());
    }
  }

  Status run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Player& player : players_) {
        while (!player.done()) {
          Result<bool> finished = play_round(player, moved);
          if (!finished.has_value()) return finished.error().with_context(place_of(player));
          if (!finished.value()) break;
        }
      }
    }
    for (const Player& player : players_) {
      if (!player.done())
        return Status(Code::kInternal, "waits for ever").with_context(place_of(player));
    }
    for (std::size_t q = 0; q < queues_.size(); ++q) {
      if (!queues_[q].empty()) {
        return {Code::kInternal,
                format("%zu messages from rank %zu to rank %zu were never received",
                       queues_[q].size(), q / size_, q % size_)};
      }
    }
    return {};
  }

  std::vector<Player>& players() { return players_; }

 private:
  static std::string place_of(const Player& player) {
    return format("rank %d, round %zu", player.schedule->rank, player.round + 1);
  }

  // True when the round is over; false when it waits for a message.
  Result<bool> play_round(Player& player, bool& moved) {
    const Round& round = player.schedule->rounds[player.round];
    if (!player.sent) {
      GW_TRY(check_races(round));
      for (const Step& step : round) {
        if (step.op == Op::kSend) GW_TRY(send(player, step));
      }
      player.sent = moved = true;
    }
    for (; player.received < round.size(); ++player.received) {
      const Step& step = round[player.received];
      if (step.op != Op::kRecvCopy && step.op != Op::kRecvReduce) continue;
      GW_ASSIGN(const bool arrived, receive(player, step));
      if (!arrived) return false;
      moved = true;
    }
    for (const Step& step : round) {
      if (step.peer < 0) GW_TRY(run_local(player, step));
    }
    ++player.round;
    player.sent = false;
    player.received = 0;
    return true;
  }

  static bool overlap(const Place& a, const Place& b) {
    return a.buffer == b.buffer && a.range.begin < b.range.end && b.range.begin < a.range.end;
  }

  static Status check_races(const Round& round) {
    for (const Step& write : round) {
      if (write.op != Op::kRecvCopy && write.op != Op::kRecvReduce) continue;
      for (const Step& other : round) {
        if (&other == &write || other.peer < 0) continue;
        if (overlap(write.to, other.op == Op::kSend ? other.from : other.to)) {
          return {Code::kInternal,
                  format("messages from rank %d and with rank %d touch the same elements",
                         write.peer, other.peer)};
        }
      }
    }
    return {};
  }

  Status send(Player& player, const Step& step) {
    GW_TRY(check_peer(player, step));
    GW_ASSIGN(Symbol symbol, player.of(step.from).read(step.from.range));
    const std::int64_t elems = step.from.range.size();
    const auto to = static_cast<std::size_t>(step.peer);
    queues_[static_cast<std::size_t>(player.schedule->rank) * size_ + to].push_back(
        {elems, std::move(symbol), player.heard});
    ++player.cost.messages_sent;
    player.cost.elems_sent += elems;
    return {};
  }

  Result<bool> receive(Player& player, const Step& step) {
    GW_TRY(check_peer(player, step));
    auto& queue = queues_[static_cast<std::size_t>(step.peer) * size_ +
                          static_cast<std::size_t>(player.schedule->rank)];
    if (queue.empty()) return false;
    Message message = std::move(queue.front());
    queue.pop_front();
    if (message.elems != step.to.range.size()) {
      return Status(Code::kInternal, format("gets %lld elements from rank %d and wants %lld",
                                            static_cast<long long>(message.elems), step.peer,
                                            static_cast<long long>(step.to.range.size())));
    }
    for (std::size_t r = 0; r < size_; ++r) player.heard[r] = player.heard[r] || message.heard[r];
    player.cost.elems_received += message.elems;
    Memory& target = player.of(step.to);
    if (step.op == Op::kRecvReduce && message.elems > 0) {
      GW_ASSIGN(Symbol sum, target.read(step.to.range));
      GW_TRY(combine(sum, message.symbol));
      message.symbol = std::move(sum);
    }
    GW_TRY(target.write(step.to.range, std::move(message.symbol)));
    return true;
  }

  Status run_local(Player& player, const Step& step) {
    if (step.op == Op::kFinish) {
      GW_ASSIGN(Symbol symbol, player.of(step.to).read(step.to.range));
      ++symbol.finished;
      return player.of(step.to).write(step.to.range, std::move(symbol));
    }
    if (step.from.range.size() != step.to.range.size()) {
      return {Code::kInternal, "a local step's ranges differ in length"};
    }
    GW_ASSIGN(Symbol symbol, player.of(step.from).read(step.from.range));
    if (step.op == Op::kReduce && step.to.range.size() > 0) {
      GW_ASSIGN(Symbol sum, player.of(step.to).read(step.to.range));
      GW_TRY(combine(sum, symbol));
      symbol = std::move(sum);
    }
    return player.of(step.to).write(step.to.range, std::move(symbol));
  }

  Status check_peer(const Player& player, const Step& step) const {
    if (step.peer >= 0 && step.peer < static_cast<int>(size_) &&
        step.peer != player.schedule->rank) {
      return {};
    }
    return {Code::kInternal, format("talks to rank %d of %zu", step.peer, size_)};
  }

  std::size_t size_;
  std::vector<Player> players_;
  std::vector<std::deque<Message>> queues_;  // from * size + to
};

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) sum += count;
  return sum;
}

// Where element `begin` of rank's kOut comes from: its origin and, if it is no reduction, its rank.
struct Wanted {
  std::int64_t origin = 0;
  int from = -1;
};

Wanted wanted_at(const ScheduleClaim& claim, int rank, std::int64_t begin) {
  using Operation = ScheduleClaim::Operation;
  const auto size = static_cast<std::size_t>(claim.size);
  switch (claim.operation) {
    case Operation::kAllReduce: return {begin, -1};
    case Operation::kReduceScatter: return {rank * claim.elems + begin, -1};
    case Operation::kBroadcast: return {begin, claim.root};
    case Operation::kAllGather: {
      std::size_t from = 0;
      while (begin >= claim.counts[from]) begin -= claim.counts[from++];
      return {begin, static_cast<int>(from)};
    }
    case Operation::kAllToAll: {
      const auto to = static_cast<std::size_t>(rank);
      std::size_t from = 0;
      while (begin >= claim.counts[from * size + to]) begin -= claim.counts[from++ * size + to];
      const std::int64_t before = sum_of(std::span(claim.counts).subspan(from * size, to));
      return {before + begin, static_cast<int>(from)};
    }
    case Operation::kBarrier: break;
  }
  return {};
}

std::int64_t wanted_elems(const ScheduleClaim& claim, int rank) {
  using Operation = ScheduleClaim::Operation;
  if (claim.operation == Operation::kBarrier) return 0;
  if (claim.operation == Operation::kAllGather) return sum_of(claim.counts);
  if (claim.operation != Operation::kAllToAll) return claim.elems;
  std::int64_t sum = 0;
  for (int from = 0; from < claim.size; ++from) {
    sum += claim.counts[static_cast<std::size_t>(from * claim.size + rank)];
  }
  return sum;
}

Status check_cell(const ScheduleClaim& claim, int rank, std::int64_t begin, const Symbol& symbol) {
  const Wanted wanted = wanted_at(claim, rank, begin);
  if (symbol.origin != wanted.origin) {
    return {Code::kInternal,
            format("holds elements from %lld on, not from %lld",
                   static_cast<long long>(symbol.origin), static_cast<long long>(wanted.origin))};
  }
  if (wanted.from >= 0) {
    if (symbol.ranks == std::vector<int>{wanted.from} && symbol.finished == 0) return {};
    return {Code::kInternal, format("should be rank %d's, untouched", wanted.from)};
  }
  std::vector<int> all(static_cast<std::size_t>(claim.size));
  for (int r = 0; r < claim.size; ++r) all[static_cast<std::size_t>(r)] = r;
  if (claim.rank_order && !(symbol.left_fold && symbol.ranks == all)) {
    return {Code::kInternal, "is not a left fold in rank order"};
  }
  std::vector<int> ranks = symbol.ranks;
  std::ranges::sort(ranks);
  if (ranks != all) return {Code::kInternal, "does not hold every contribution exactly once"};
  if (symbol.finished != (claim.size > 1 ? 1 : 0)) {
    return {Code::kInternal, format("is finished %d times", symbol.finished)};
  }
  return {};
}

Status check_out(const ScheduleClaim& claim, Player& player) {
  const int rank = player.schedule->rank;
  const std::int64_t elems = wanted_elems(claim, rank);
  Memory& out = player.memory[1];
  if (out.elems != elems) {
    return {Code::kInternal,
            format("rank %d: kOut of %lld elements, %lld wanted", rank,
                   static_cast<long long>(out.elems), static_cast<long long>(elems))};
  }
  if (out.cells.empty() && elems > 0) {
    GW_TRY(out.read({0, elems}).error());  // nothing touched it: right only if it was right before
  }
  std::int64_t covered = 0;
  for (const auto& [begin, cell] : out.cells) {
    Status status = begin != covered ? Status(Code::kInternal, "a gap before it is untouched")
                                     : check_cell(claim, rank, begin, cell.second);
    if (!status.ok()) {
      return status.with_context(format("rank %d, out[%lld, %lld)", rank,
                                        static_cast<long long>(begin),
                                        static_cast<long long>(cell.first)));
    }
    covered = cell.first;
  }
  if (covered == elems) return {};
  return {Code::kInternal, format("rank %d: out[%lld, %lld) is untouched", rank,
                                  static_cast<long long>(covered), static_cast<long long>(elems))};
}

}  // namespace

Result<std::vector<ScheduleCost>> check_schedules(std::span<const Schedule> schedules,
                                                  const ScheduleClaim& claim) {
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    if (schedules[r].rank != static_cast<int>(r) || schedules[r].size != claim.size ||
        schedules.size() != static_cast<std::size_t>(claim.size)) {
      return Status(Code::kInternal,
                    format("schedule %zu is that of rank %d of %d, in a group of %d", r,
                           schedules[r].rank, schedules[r].size, claim.size));
    }
  }
  Simulation simulation(schedules);
  GW_TRY(simulation.run());
  std::vector<ScheduleCost> costs;
  for (Player& player : simulation.players()) {
    if (claim.operation == ScheduleClaim::Operation::kBarrier) {
      const auto heard = std::ranges::count(player.heard, true);
      if (heard != claim.size) {
        return Status(Code::kInternal,
                      format("rank %d leaves having heard from %d of %d ranks",
                             player.schedule->rank, static_cast<int>(heard), claim.size));
      }
    }
    GW_TRY(check_out(claim, player));
    costs.push_back(player.cost);
  }
  return costs;
}

}  // namespace gradwire
