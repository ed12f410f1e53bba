#include "collectives/schedules/checker.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "base/text.h"
#include "collectives/schedules/claims.h"
#include "collectives/schedules/round_actions.h"
#include "collectives/schedules/symbolic_memory.h"

namespace gradwire {
namespace {

using Op = Step::Op;

struct Message {
  std::int64_t elems = 0;
  Contents contents = {};
  std::vector<bool> heard = {};
};

// Where a place really is.
struct Spot {
  SymbolicMemory* memory = nullptr;
  Range range = {};
};

// One rank of the simulation.
struct Player {
  const Schedule* schedule = nullptr;
  std::array<SymbolicMemory, 3> memory = {};
  std::array<std::size_t, 3> memory_of = {0, 1, 2};  // by BufferId
  std::array<std::int64_t, 3> shift_of = {0, 0, 0};  // of a buffer's elements in its memory
  std::vector<bool> heard = {};
  std::size_t round = 0;
  bool sent = false;         // the round's messages are out
  std::size_t received = 0;  // steps of the round whose message has arrived, in order
  std::map<const Step*, Contents> arrived = {};  // of the round, to be reduced
  ScheduleCost cost;

  Spot spot(const Place& place) {
    const auto buffer = static_cast<std::size_t>(place.buffer);
    const std::int64_t shift = shift_of[buffer];
    return {&memory[memory_of[buffer]], {place.range.begin + shift, place.range.end + shift}};
  }
  Result<Contents> read(const Place& place) {
    const Spot at = spot(place);
    return at.memory->read(at.range);
  }
  void write(const Place& place, const Contents& contents) {
    const Spot at = spot(place);
    at.memory->write(at.range, contents);
  }
  bool done() const { return round == schedule->rounds.size(); }
};

constexpr std::size_t kInMemory = 0;
constexpr std::size_t kOutMemory = 1;

// kIn and kOut share memory: the smaller one is `row` of the larger.
void alias(Player& player, Range row) {
  const Schedule& schedule = *player.schedule;
  if (schedule.in_elems >= schedule.out_elems) {
    player.memory_of[kOutMemory] = kInMemory;
    player.shift_of[kOutMemory] = schedule.in_elems == schedule.out_elems ? 0 : row.begin;
    return;
  }
  const auto own = player.memory[kInMemory].read({0, schedule.in_elems});
  if (own.has_value()) player.memory[kOutMemory].write(row, own.value());
  player.memory_of[kInMemory] = kOutMemory;
  player.shift_of[kInMemory] = row.begin;
}

Player player_of(const Schedule& schedule, const ScheduleClaim& claim) {
  Player player;
  const int rank = schedule.rank;
  player.schedule = &schedule;
  player.memory = {SymbolicMemory(schedule.in_elems, true, rank),
                   SymbolicMemory(schedule.out_elems, schedule.in_place, rank),
                   SymbolicMemory(schedule.scratch_elems, false, rank)};
  if (schedule.in_place) player.memory_of[kInMemory] = kOutMemory;
  const bool at_root_alone = claim.operation == OpKind::kReduce ||
                             claim.operation == OpKind::kGather ||
                             claim.operation == OpKind::kScatter;
  if (claim.aliased && !schedule.in_place && (!at_root_alone || rank == claim.root)) {
    alias(player, row_of(claim, rank));
  }
  if (claim.operation == OpKind::kBarrier) {
    player.heard.assign(static_cast<std::size_t>(claim.size), false);
    player.heard[static_cast<std::size_t>(rank)] = true;
  }
  return player;
}

bool overlap(const Spot& a, const Spot& b) {
  return a.memory == b.memory && a.range.begin < b.range.end && b.range.begin < a.range.end;
}

// kRecvReduce touches its place only when the round's messages are done.
Status check_races(Player& player, const Round& round) {
  for (const Step& write : round) {
    if (write.op != Op::kRecvCopy) continue;
    for (const Step& other : round) {
      if (&other == &write || (other.op != Op::kSend && other.op != Op::kRecvCopy)) continue;
      const Place& place = other.op == Op::kSend ? other.from : other.to;
      if (overlap(player.spot(write.to), player.spot(place))) {
        return {Code::kInternal,
                format("messages from rank %d and with rank %d touch the same elements", write.peer,
                       other.peer)};
      }
    }
  }
  return {};
}

class SymbolicRun {
 public:
  SymbolicRun(std::span<const Schedule> schedules, const ScheduleClaim& claim) : claim_(claim) {
    for (const Schedule& schedule : schedules) players_.push_back(player_of(schedule, claim));
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
        return Status(Code::kInternal, "waits for a message that is never sent")
            .with_context(place_of(player));
    }
    for (const auto& [ends, queue] : queues_) {
      if (!queue.empty()) {
        return {Code::kInternal, format("%zu messages from rank %d to rank %d were never received",
                                        queue.size(), ends.first, ends.second)};
      }
    }
    return {};
  }

  Result<std::vector<ScheduleCost>> costs() {
    OutputCheck output(claim_);
    std::vector<ScheduleCost> costs;
    for (Player& player : players_) {
      GW_TRY(check_heard(player));
      const std::int64_t elems = player.schedule->out_elems;
      const Spot out = player.spot({BufferId::kOut, {0, elems}});
      GW_TRY(output.check(player.schedule->rank, elems, *out.memory, out.range.begin));
      costs.push_back(player.cost);
    }
    return costs;
  }

 private:
  static std::string place_of(const Player& player) {
    return format("rank %d, round %zu", player.schedule->rank, player.round + 1);
  }

  Status check_heard(const Player& player) const {
    const auto heard = std::ranges::count(player.heard, true);
    if (heard == static_cast<std::ptrdiff_t>(player.heard.size())) return {};
    return {Code::kInternal, format("rank %d leaves having heard from %d of %d ranks",
                                    player.schedule->rank, static_cast<int>(heard), claim_.size)};
  }

  // True when the round is over; false when it waits for a message.
  Result<bool> play_round(Player& player, bool& moved) {
    const Round& round = player.schedule->rounds[player.round];
    if (!player.sent) {
      GW_TRY(begin_round(player, round));
      player.sent = moved = true;
    }
    for (; player.received < round.size(); ++player.received) {
      const Step& step = round[player.received];
      if (step.op != Op::kRecvCopy && step.op != Op::kRecvReduce) continue;
      GW_ASSIGN(const bool arrived, receive(player, step));
      if (!arrived) return false;
      moved = true;
    }
    GW_TRY(act(player, round));
    ++player.round;
    player.sent = false;
    player.received = 0;
    return true;
  }

  Status begin_round(Player& player, const Round& round) {
    bool messages = false;
    for (const Step& step : round) {
      GW_TRY(check_step(player, step));
      messages = messages || step.peer >= 0;
    }
    GW_TRY(check_races(player, round));
    for (const Step& step : round) {
      if (step.op == Op::kSend) GW_TRY(send(player, step));
    }
    player.cost.rounds += messages ? 1 : 0;
    return {};
  }

  Status check_step(Player& player, const Step& step) const {
    const bool local = step.op == Op::kCopy || step.op == Op::kReduce || step.op == Op::kFinish;
    const bool peer = step.peer >= 0 && step.peer < claim_.size &&  //
                      step.peer != player.schedule->rank;
    if (!local && !peer) {
      return {Code::kInternal, format("talks to rank %d of %d", step.peer, claim_.size)};
    }
    if (local && step.peer >= 0) return {Code::kInternal, "a local step names a peer"};
    const bool reads = step.op == Op::kSend || step.op == Op::kCopy || step.op == Op::kReduce;
    const bool writes = step.op != Op::kSend;
    const bool divisible = player.schedule->divisible;
    for (const auto& [used, place] : {std::pair(reads, step.from), std::pair(writes, step.to)}) {
      if (!used) continue;
      const Spot at = player.spot(place);
      GW_TRY(at.memory->name(at.range, divisible));
    }
    if (!(reads && writes)) return {};
    if (step.from.range.size() != step.to.range.size()) {
      return {Code::kInternal, "a local step's ranges differ in length"};
    }
    const Spot from = player.spot(step.from);
    const Spot to = player.spot(step.to);
    const bool itself = step.op == Op::kCopy && from.range == to.range;  // kIn and kOut are aliased
    if (!overlap(from, to) || itself) return {};
    return {Code::kInternal, "a local step's ranges overlap"};
  }

  Status send(Player& player, const Step& step) {
    GW_ASSIGN(Contents contents, player.read(step.from));
    const std::int64_t elems = step.from.range.size();
    queues_[{player.schedule->rank, step.peer}].push_back(
        {elems, std::move(contents), player.heard});
    ++player.cost.messages_sent;
    player.cost.elems_sent += elems;
    return {};
  }

  Result<bool> receive(Player& player, const Step& step) {
    auto& queue = queues_[{step.peer, player.schedule->rank}];
    if (queue.empty()) return false;
    Message message = std::move(queue.front());
    queue.pop_front();
    if (message.elems != step.to.range.size()) {
      return Status(Code::kInternal, format("gets %lld elements from rank %d and wants %lld",
                                            static_cast<long long>(message.elems), step.peer,
                                            static_cast<long long>(step.to.range.size())));
    }
    for (std::size_t r = 0; r < player.heard.size(); ++r) {
      player.heard[r] = player.heard[r] || message.heard[r];
    }
    player.cost.elems_received += message.elems;
    if (step.op == Op::kRecvReduce) {
      player.arrived[&step] = std::move(message.contents);
    } else {
      player.write(step.to, message.contents);
    }
    return true;
  }

  static Status act(Player& player, const Round& round) {
    const std::vector<const Step*> steps = steps_after_messages(round);
    for (std::size_t i = 0; i < steps.size();) {
      const auto action = std::span(steps).subspan(i);
      const std::size_t length = action_length(action);
      GW_TRY(act(player, action.first(length)));
      i += length;
    }
    player.arrived.clear();
    return {};
  }

  static Status act(Player& player, std::span<const Step* const> action) {
    const Step& first = *action[0];
    if (first.op == Op::kCopy) {
      GW_ASSIGN(const Contents contents, player.read(first.from));
      player.write(first.to, contents);
      return {};
    }
    GW_ASSIGN(Contents value, player.read(first.to));
    for (const Step* step : action) {
      if (!is_reduction(*step)) continue;
      Contents operand;
      if (step->op == Op::kRecvReduce) {
        operand = std::move(player.arrived[step]);
      } else {
        GW_ASSIGN(operand, player.read(step->from));
      }
      GW_ASSIGN(value, combine(value, operand));
    }
    player.write(first.to, rounded(value, action.back()->op == Op::kFinish));
    return {};
  }

  const ScheduleClaim& claim_;
  std::vector<Player> players_;
  std::map<std::pair<int, int>, std::deque<Message>> queues_;  // by sender and receiver
};

Status check_group(std::span<const Schedule> schedules, const ScheduleClaim& claim) {
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    const Schedule& one = schedules[r];
    if (one.rank != static_cast<int>(r) || one.size != claim.size ||
        schedules.size() != static_cast<std::size_t>(claim.size)) {
      return {Code::kInternal, format("schedule %zu is that of rank %d of %d, in a group of %d", r,
                                      one.rank, one.size, claim.size)};
    }
    if (one.divisible != schedules[0].divisible || one.fan_in != schedules[0].fan_in ||
        one.stretches.size() != schedules[0].stretches.size()) {
      return {Code::kInternal, format("ranks 0 and %zu differ in how they may be cut", r)};
    }
  }
  return check_claim(claim);
}

// The stretches are as long together as the whole, on every rank.
Status check_lengths(std::span<const Schedule> schedules, const ScheduleClaim& claim) {
  for (const Schedule& schedule : schedules) {
    std::int64_t in = 0;
    std::int64_t out = 0;
    for (const Schedule& stretch : schedule.stretches) {
      in += stretch.in_elems;
      out += stretch.out_elems;
    }
    if (in != schedule.in_elems || in != claim.elems || out != schedule.out_elems) {
      return {Code::kInternal,
              format("rank %d's chunks are not as long as the whole", schedule.rank)};
    }
  }
  return {};
}

Result<std::vector<ScheduleCost>> check_stretches(std::span<const Schedule> schedules,
                                                  ScheduleClaim claim) {
  GW_TRY(check_lengths(schedules, claim));
  std::vector<ScheduleCost> sum(schedules.size());
  for (std::size_t k = 0; k < schedules[0].stretches.size(); ++k) {
    std::vector<Schedule> stretch;
    for (const Schedule& schedule : schedules) stretch.push_back(schedule.stretches[k]);
    claim.elems = stretch[0].in_elems;
    GW_ASSIGN(const auto costs, check_schedules(stretch, claim));
    for (std::size_t r = 0; r < costs.size(); ++r) {
      sum[r].rounds += costs[r].rounds;
      sum[r].messages_sent += costs[r].messages_sent;
      sum[r].elems_sent += costs[r].elems_sent;
      sum[r].elems_received += costs[r].elems_received;
    }
  }
  return sum;
}

}  // namespace

Result<std::vector<ScheduleCost>> check_schedules(std::span<const Schedule> schedules,
                                                  const ScheduleClaim& claim) {
  GW_TRY(check_group(schedules, claim));
  if (!schedules[0].stretches.empty()) return check_stretches(schedules, claim);
  SymbolicRun simulation(schedules, claim);
  GW_TRY(simulation.run());
  return simulation.costs();
}

}  // namespace gradwire
