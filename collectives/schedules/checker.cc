#include "collectives/schedules/checker.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/philox.h"
#include "base/text.h"
#include "collectives/schedules/round_actions.h"

namespace gradwire {
namespace {

using Op = Step::Op;

// How a value came to be.
struct Expression {
  std::vector<int> ranks = {};  // contributions, in the order in which they were combined
  bool left_fold = true;        // each was added to all before it
  int finished = 0;
  int roundings = 0;        // of what was combined
  std::uint64_t order = 0;  // equal for values that were combined and rounded in the same way
};

// `size` elements that hold elements origin ... of their contributors' input.
struct Stretch {
  std::int64_t size = 0;
  std::int64_t origin = 0;
  std::shared_ptr<const Expression> value;
};
using Contents = std::vector<Stretch>;

constexpr std::uint64_t kFinished = 0x46;  // what happened last, in Expression::order
constexpr std::uint64_t kRounded = 0x52;

// Consecutive elements of the same kind are one stretch.
void append(Contents& contents, Stretch stretch) {
  if (stretch.size == 0) return;
  if (!contents.empty()) {
    Stretch& last = contents.back();
    if (last.value == stretch.value && last.origin + last.size == stretch.origin) {
      last.size += stretch.size;
      return;
    }
  }
  contents.push_back(std::move(stretch));
}

Result<std::shared_ptr<const Expression>> sum_of(const Expression& a, const Expression& b) {
  if (a.finished + b.finished > 0) {
    return Status(Code::kInternal, "combines a finished reduction");
  }
  Expression sum = a;
  sum.left_fold = a.left_fold && b.ranks.size() == 1;
  sum.roundings += b.roundings;
  sum.order = mix64(a.order + mix64(b.order));
  sum.ranks.insert(sum.ranks.end(), b.ranks.begin(), b.ranks.end());
  return std::shared_ptr<const Expression>(std::make_shared<Expression>(std::move(sum)));
}

// Calls visit(size, a, b) for all runs of `size` elements that lie in one stretch of either, of
// which a and b are what is left from there on, until one of them ends.
template <typename Visit>
Status side_by_side(const Contents& first, const Contents& second, const Visit& visit) {
  Stretch a, b;
  for (auto i = first.begin(), j = second.begin();;) {
    if (a.size == 0 && i != first.end()) a = *i++;
    if (b.size == 0 && j != second.end()) b = *j++;
    const std::int64_t size = std::min(a.size, b.size);
    if (size == 0) return {};
    GW_TRY(visit(size, a, b));
    for (Stretch* const one : {&a, &b}) {
      one->size -= size;
      one->origin += size;
    }
  }
}

// The values of `into` with those of `from` added, element by element.
Result<Contents> combine(const Contents& into, const Contents& from) {
  Contents sum;
  GW_TRY(side_by_side(into, from, [&](std::int64_t size, const Stretch& a, const Stretch& b) {
    if (a.origin != b.origin) return Status(Code::kInternal, "combines different elements");
    GW_ASSIGN(auto value, sum_of(*a.value, *b.value));
    append(sum, {size, a.origin, std::move(value)});
    return Status();
  }));
  return sum;
}

// With a reduction rounded, and finished before that if asked for.
Contents rounded(const Contents& contents, bool finish) {
  Contents result = contents;
  for (Stretch& stretch : result) {
    auto value = std::make_shared<Expression>(*stretch.value);
    if (finish) {
      ++value->finished;
      value->order = mix64(value->order ^ kFinished);
    }
    ++value->roundings;
    value->order = mix64(value->order ^ kRounded);
    stretch.value = std::move(value);
  }
  return result;
}

// Memory of one rank in the checker's simulation. Elements are never simulated one by one: one
// symbol stands for all elements of a stretch that went the same way, "elements `origin`... of the
// logical input, contributions of ranks 2, 0, 1 in that order". A million elements cost as much as
// ten.
class SymbolicMemory {
 public:
  SymbolicMemory() = default;
  // given: holds rank's own contribution from the start.
  SymbolicMemory(std::int64_t elems, bool given, int rank) : elems_(elems) {
    if (!given) return;
    const auto order = mix64(static_cast<std::uint64_t>(rank) + 1);
    own_ = std::make_shared<Expression>(Expression{.ranks = {rank}, .order = order});
  }

  // Bounds; and for a divisible schedule the cells' rule.
  Status name(Range range, bool divisible) {
    if (range.begin < 0 || range.end < range.begin || range.end > elems_) {
      return {Code::kInternal,
              format("outside the buffer of %lld", static_cast<long long>(elems_))};
    }
    if (range.size() == 0 || !divisible) return {};
    const auto next = cells_.upper_bound(range.begin);
    bool overlaps = next != cells_.end() && next->first < range.end;
    if (next != cells_.begin()) {
      const auto& [begin, end] = *std::prev(next);
      if (begin == range.begin && end == range.end) return {};
      overlaps = overlaps || end > range.begin;
    }
    if (overlaps) return {Code::kInternal, "overlaps another cell without being it"};
    cells_[range.begin] = range.end;
    return {};
  }

  // Of a range that was named.
  Result<Contents> read(Range range) const {
    Contents contents;
    auto next = written_.upper_bound(range.begin);
    if (next != written_.begin()) --next;
    for (std::int64_t at = range.begin; at < range.end;) {
      while (next != written_.end() && next->first + next->second.size <= at) ++next;
      const bool here = next != written_.end() && next->first <= at;
      if (here) {
        const auto& [begin, stretch] = *next;
        const std::int64_t end = std::min(range.end, begin + stretch.size);
        append(contents, {end - at, stretch.origin + (at - begin), stretch.value});
        at = end;
        continue;
      }
      if (own_ == nullptr) return Status(Code::kInternal, "read before it was written");
      const std::int64_t end =
          next == written_.end() ? range.end : std::min(range.end, next->first);
      append(contents, {end - at, at, own_});
      at = end;
    }
    return contents;
  }

  void write(Range range, const Contents& contents) {
    split_at(range.begin);
    split_at(range.end);
    written_.erase(written_.lower_bound(range.begin), written_.lower_bound(range.end));
    std::int64_t at = range.begin;
    for (const Stretch& stretch : contents) {
      written_[at] = stretch;
      at += stretch.size;
    }
  }

 private:
  void split_at(std::int64_t at) {
    const auto next = written_.upper_bound(at);
    if (next == written_.begin()) return;
    auto& [begin, stretch] = *std::prev(next);
    if (begin == at || begin + stretch.size <= at) return;
    written_[at] = {begin + stretch.size - at, stretch.origin + (at - begin), stretch.value};
    stretch.size = at - begin;
  }

  std::int64_t elems_ = 0;
  std::shared_ptr<const Expression> own_;       // null: nothing is there from the start
  std::map<std::int64_t, Stretch> written_;     // by begin
  std::map<std::int64_t, std::int64_t> cells_;  // begin to end
};

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::int64_t count_of(const ScheduleClaim& claim, int rank) {
  return claim.counts.empty() ? claim.elems : claim.counts[static_cast<std::size_t>(rank)];
}

// Rank's row where an operation's larger buffer has one: [0, elems) for those without rows.
Range row_of(const ScheduleClaim& claim, int rank) {
  const Blocks blocks = traits_of(claim.operation).blocks;
  if (blocks != Blocks::kIn && blocks != Blocks::kOut) return {0, claim.elems};
  std::int64_t begin = 0;
  for (int r = 0; r < rank; ++r) begin += count_of(claim, r);
  return {begin, begin + count_of(claim, rank)};
}

// Where element `begin` of a rank's kOut comes from: the rank, which of its elements, and how many
// from there on.
struct Source {
  int rank = -1;
  std::int64_t origin = 0;
  std::int64_t left = 0;
};

Source source_at(const ScheduleClaim& claim, int rank, std::int64_t begin, std::int64_t elems) {
  const auto size = static_cast<std::size_t>(claim.size);
  const auto to = static_cast<std::size_t>(rank);
  if (claim.operation == OpKind::kBroadcast) return {claim.root, begin, elems - begin};
  if (claim.operation == OpKind::kSend) {
    return {(rank + claim.size - 1) % claim.size, begin, elems - begin};
  }
  if (claim.operation == OpKind::kScatter) {
    return {claim.root, row_of(claim, rank).begin + begin, elems - begin};
  }
  const bool all_to_all = claim.operation == OpKind::kAllToAll;
  const auto length = [&](std::size_t from) {
    return all_to_all ? claim.counts[from * size + to] : count_of(claim, static_cast<int>(from));
  };
  std::size_t from = 0;
  while (begin >= length(from)) begin -= length(from++);
  const std::int64_t before =
      all_to_all ? sum_of(std::span(claim.counts).subspan(from * size, to)) : 0;
  return {static_cast<int>(from), before + begin, length(from) - begin};
}

Status wrong_origin(std::int64_t seen, std::int64_t wanted) {
  return {Code::kInternal, format("holds elements from %lld on, not from %lld",
                                  static_cast<long long>(seen), static_cast<long long>(wanted))};
}

Status check_moved(const Source& source, const Stretch& stretch) {
  if (stretch.origin != source.origin) return wrong_origin(stretch.origin, source.origin);
  const Expression& value = *stretch.value;
  if (value.ranks == std::vector<int>{source.rank} && value.roundings == 0) return {};
  return {Code::kInternal, format("should be rank %d's, untouched", source.rank)};
}

// What a rank's output must hold when a schedule is done. Looks at the ranks' outputs one after
// another.
class OutputCheck {
 public:
  explicit OutputCheck(const ScheduleClaim& claim) : claim_(claim) {}
  // out: elements `shift` ... of the memory are the rank's kOut, `elems` long.
  Status check(int rank, std::int64_t elems, const SymbolicMemory& memory, std::int64_t shift) {
    const std::string place = format("rank %d's kOut", rank);
    if (elems != wanted_elems(rank)) {
      return {Code::kInternal,
              place + format(" has %lld elements (expected %lld)", static_cast<long long>(elems),
                             static_cast<long long>(wanted_elems(rank)))};
    }
    if (claim_.operation == OpKind::kExclusiveScan && rank == 0) return {};
    const Result<Contents> held = memory.read({shift, shift + elems});
    if (!held.has_value()) return held.error().with_context(place);
    const Contents& contents = held.value();
    const bool reduction = traits_of(claim_.operation).reduces;
    std::int64_t at = 0;
    for (Stretch rest : contents) {
      while (rest.size > 0) {
        const Source source = reduction ? Source{} : source_at(claim_, rank, at, elems);
        const std::int64_t size = reduction ? rest.size : std::min(rest.size, source.left);
        Status status = reduction ? check_stretch(rank, at, rest) : check_moved(source, rest);
        if (!status.ok()) {
          return status.with_context(place + format("[%lld, %lld)", static_cast<long long>(at),
                                                    static_cast<long long>(at + size)));
        }
        at += size;
        rest.size -= size;
        rest.origin += size;
      }
    }
    if (claim_.operation != OpKind::kAllReduce) return {};
    if (rank == 0) first_ = contents;
    return check_alike(contents).with_context(place);
  }

 private:
  std::int64_t wanted_elems(int rank) const {
    const bool root = rank == claim_.root;
    switch (claim_.operation) {
      case OpKind::kBarrier: return 0;
      case OpKind::kReduce: return root ? claim_.elems : 0;
      case OpKind::kAllGather: return row_of(claim_, claim_.size - 1).end;
      case OpKind::kGather: return root ? row_of(claim_, claim_.size - 1).end : 0;
      case OpKind::kReduceScatter:
      case OpKind::kScatter: return row_of(claim_, rank).size();
      case OpKind::kAllToAll: break;
      default: return claim_.elems;
    }
    std::int64_t sum = 0;
    for (int from = 0; from < claim_.size; ++from) {
      sum += claim_.counts[static_cast<std::size_t>(from * claim_.size + rank)];
    }
    return sum;
  }

  Status check_stretch(int rank, std::int64_t begin, const Stretch& stretch) {
    std::int64_t wanted = begin;
    if (claim_.operation == OpKind::kReduceScatter) wanted += row_of(claim_, rank).begin;
    if (stretch.origin != wanted) return wrong_origin(stretch.origin, wanted);
    if (complete_.contains(stretch.value)) return {};
    const bool scan = claim_.operation == OpKind::kExclusiveScan;
    GW_TRY(check_reduction(*stretch.value, scan ? rank : claim_.size));
    if (!scan) complete_.insert(stretch.value);
    return {};
  }

  // below: how many ranks, from 0 on, contribute.
  Status check_reduction(const Expression& value, int below) const {
    std::vector<int> all(static_cast<std::size_t>(below));
    std::iota(all.begin(), all.end(), 0);
    if (claim_.rank_order && !(value.left_fold && value.ranks == all)) {
      return {Code::kInternal, "is not a left fold in rank order"};
    }
    if (claim_.rank_order && below > 1 && value.roundings != 1) {
      return {Code::kInternal, format("is rounded %d times, not once", value.roundings)};
    }
    std::vector<int> ranks = value.ranks;
    std::ranges::sort(ranks);
    if (ranks != all) return {Code::kInternal, "does not hold every contribution exactly once"};
    const int finished = claim_.operation == OpKind::kExclusiveScan || below == 1 ? 0 : 1;
    if (value.finished == finished) return {};
    return {Code::kInternal, format("is finished %d times", value.finished)};
  }

  // Replicas are bit-identical only if they were combined in the same way.
  Status check_alike(const Contents& contents) const {
    std::int64_t at = 0;
    return side_by_side(
        contents, first_, [&](std::int64_t size, const Stretch& a, const Stretch& b) {
          if (a.value->order == b.value->order) {
            at += size;
            return Status();
          }
          return Status(Code::kInternal,
                        format("elements from %lld on are combined in another order than on rank 0",
                               static_cast<long long>(at)));
        });
  }

  const ScheduleClaim& claim_;
  Contents first_;  // all_reduce: what rank 0 holds
  std::set<std::shared_ptr<const Expression>> complete_;
};

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
  const bool at_root_alone = traits_of(claim.operation).rooted;
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
  const auto size = static_cast<std::size_t>(claim.size);
  const bool pairs = claim.operation == OpKind::kAllToAll;
  const std::size_t wanted = pairs ? size * size : size;
  if (claim.counts.size() == wanted || (claim.counts.empty() && !pairs)) return {};
  return {Code::kInternal, format("claims %zu counts (expected %zu)", claim.counts.size(), wanted)};
}

Result<std::vector<ScheduleCost>> check_stretches(std::span<const Schedule> schedules,
                                                  ScheduleClaim claim) {
  for (const Schedule& schedule : schedules) {
    std::int64_t in = 0;
    std::int64_t out = 0;
    for (const Schedule& stretch : schedule.stretches) {
      in += stretch.in_elems;
      out += stretch.out_elems;
    }
    if (in != schedule.in_elems || in != claim.elems || out != schedule.out_elems) {
      return Status(Code::kInternal,
                    format("rank %d's chunks are not as long as the whole", schedule.rank));
    }
  }
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
