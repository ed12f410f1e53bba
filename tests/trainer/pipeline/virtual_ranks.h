// Virtual time that owns the threads of a pipeline's ranks: what executors do takes the ticks that
// costs say, and nothing else takes any. Time goes on when every rank waits for it; ports are given
// by (time when the message was ready, sender, message), so that results do not depend on when
// threads run. Knows no schedule: it sees what executors call.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "trainer/pipeline/run/transfers.h"
#include "trainer/pipeline/run/work.h"
#include "trainer/pipeline/simulate.h"

namespace gradwire {

// Every function but the constructor and spans() is for the ranks' threads, one each.
class VirtualRanks {
 public:
  // How messages meet is `costs`'s. Borrowed.
  VirtualRanks(int ranks, const PipelineCosts& costs)
      : costs_(costs), ranks_(static_cast<std::size_t>(ranks)), awake_(ranks) {}

  std::int64_t now() {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  // A rank's thread is done: time goes on without it.
  void leave() {
    std::unique_lock lock(mutex_);
    if (--awake_ == 0) go_on();
  }

  // The rank is busy for so long.
  Status spend(std::int64_t ticks) {
    std::unique_lock lock(mutex_);
    bool over = false;
    at(now_ + ticks, [&over] { over = true; });
    return sleep_until(lock, [&over] { return over; });
  }
  // All `count` ranks that come here with the same key, for the longest of their times.
  Status meet(const std::pair<int, int>& key, int count, std::int64_t ticks) {
    join(key, count, ticks);
    return wait_met(key);
  }
  // The same in two halves, between which the rank does other things.
  void join(const std::pair<int, int>& key, int count, std::int64_t ticks) {
    const std::lock_guard lock(mutex_);
    Meeting& meeting = meetings_[key];
    meeting.ticks = std::max(meeting.ticks, ticks);
    if (++meeting.here == count) at(now_ + meeting.ticks, [&meeting] { meeting.over = true; });
  }
  Status wait_met(const std::pair<int, int>& key) {
    std::unique_lock lock(mutex_);
    const Meeting& meeting = meetings_[key];
    return sleep_until(lock, [&meeting] { return meeting.over; });
  }
  // A reduction beside the rank's other work: when it will have ended, in ticks.
  std::int64_t reduce(int rank, std::int64_t ticks) {
    const std::lock_guard lock(mutex_);
    std::int64_t& free = this->rank(rank).reducer_free;
    free = std::max(free, now_) + ticks;
    const std::int64_t end = free;
    at(end, [] {});
    return end;
  }
  Status sleep_until_tick(std::int64_t tick) {
    std::unique_lock lock(mutex_);
    return sleep_until(lock, [this, tick] { return now_ >= tick; });
  }

  // `send`: the message's SF or SB, by both of its ends.
  void issue(const PipelineOp& send, int from, int to) { offer(send, from, to, true); }
  void post(const PipelineOp& send, int from, int to) { offer(send, from, to, false); }
  Status wait(const PipelineOp& send) {
    std::unique_lock lock(mutex_);
    Message& message = messages_[send];
    return sleep_until(lock, [&message] { return message.arrived; });
  }
  bool arrived(const PipelineOp& send) {
    const std::lock_guard lock(mutex_);
    return messages_[send].arrived;
  }

 private:
  struct Message {
    PipelineOp send = {};
    int from = 0;
    int to = 0;
    bool issued = false;
    bool posted = false;
    bool arrived = false;
  };
  struct Meeting {
    int here = 0;
    std::int64_t ticks = 0;
    bool over = false;
  };
  struct Rank {
    bool out_busy = false;
    bool in_busy = false;
    std::deque<Message*> queue = {};  // kOrdered
    bool queue_busy = false;
    std::int64_t reducer_free = 0;
  };
  using Then = std::function<void()>;

  Rank& rank(int number) { return ranks_[static_cast<std::size_t>(number)]; }
  std::int64_t bytes_of(const PipelineOp& send) const {
    const PipelineStageCost& stage = costs_.stages[send.stage];
    return send.kind == PipelineOpKind::kSendForward ? stage.output_bytes : stage.input_bytes;
  }
  void at(std::int64_t tick, Then then) { events_.emplace(tick, std::move(then)); }

  void offer(const PipelineOp& send, int from, int to, bool issued) {
    const std::lock_guard lock(mutex_);
    Message& message = messages_[send];
    message.send = send;
    message.from = from;
    message.to = to;
    (issued ? message.issued : message.posted) = true;
    if (costs_.links == PipelineLinks::kOrdered) {
      rank(issued ? from : to).queue.push_back(&message);
      return;
    }
    // Without overlap a receive is buffered, and its send waits for nobody.
    const bool ready = costs_.overlap ? message.issued && message.posted : issued;
    if (ready) ready_.insert({now_, from, send});
  }

  template <typename Condition>
  Status sleep_until(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    if (condition()) return {};
    ++asleep_;
    while (!condition() && !stuck_) {
      if (--awake_ == 0) {
        go_on();
        continue;
      }
      const std::uint64_t seen = moves_;
      ended_.wait(lock, [&] { return moves_ != seen; });
    }
    --asleep_;
    if (condition()) return {};
    return {Code::kTimedOut, "all ranks wait for one another in virtual time"};
  }

  // Nobody runs: messages start, then the next events happen, and ranks that waited look again.
  void go_on() {
    while (start_messages()) {
    }
    if (events_.empty()) {
      stuck_ = asleep_ > 0;
    } else {
      now_ = events_.begin()->first;
      while (!events_.empty() && events_.begin()->first == now_) {
        events_.extract(events_.begin()).mapped()();
      }
    }
    awake_ = asleep_;
    ++moves_;
    ended_.notify_all();
  }

  bool start_messages() {
    if (costs_.links == PipelineLinks::kOrdered) return start_first_ones();
    bool any = false;
    for (auto next = ready_.begin(); next != ready_.end();) {
      Message& message = messages_[std::get<2>(*next)];
      Rank& from = rank(message.from);
      Rank& to = rank(message.to);
      if (from.out_busy || to.in_busy) {
        ++next;
        continue;
      }
      next = ready_.erase(next);
      any = true;
      if (const std::int64_t kept = link(message).beta * bytes_of(message.send); kept > 0) {
        from.out_busy = to.in_busy = true;
        at(now_ + kept, [&from, &to] { from.out_busy = to.in_busy = false; });
      }
      carry(message, [] {});
    }
    return any;
  }

  bool start_first_ones() {
    bool any = false;
    for (Rank& one : ranks_) {
      if (one.queue.empty() || one.queue_busy) continue;
      Message& message = *one.queue.front();
      Rank& from = rank(message.from);
      Rank& to = rank(message.to);
      const auto is_first = [&](const Rank& end) {
        return !end.queue_busy && !end.queue.empty() && end.queue.front() == &message;
      };
      if (!is_first(from) || !is_first(to)) continue;
      from.queue_busy = to.queue_busy = true;
      any = true;
      carry(message, [&from, &to] {
        for (Rank* end : {&from, &to}) {
          end->queue.pop_front();
          end->queue_busy = false;
        }
      });
    }
    return any;
  }

  const PipelineLink& link(const Message& message) const {
    return costs_.link_of.empty() ? costs_.link
                                  : costs_.link_of[static_cast<std::size_t>(message.from)]
                                                  [static_cast<std::size_t>(message.to)];
  }
  void carry(Message& message, Then then) {
    const PipelineLink& used = link(message);
    at(now_ + used.alpha + used.beta * bytes_of(message.send), [&message, then = std::move(then)] {
      message.arrived = true;
      then();
    });
  }

  const PipelineCosts& costs_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::int64_t now_ = 0;
  std::vector<Rank> ranks_;
  int awake_;                // threads that run, or are to look again
  int asleep_ = 0;           // threads in sleep_until()
  std::uint64_t moves_ = 0;  // of go_on()
  bool stuck_ = false;
  std::map<PipelineOp, Message> messages_;
  std::map<std::pair<int, int>, Meeting> meetings_;
  std::set<std::tuple<std::int64_t, int, PipelineOp>> ready_;
  std::multimap<std::int64_t, Then> events_;
};

// What happened on a rank: every operation in its order, and when it had the rank.
struct TimedOp {
  PipelineOp op = {};
  PipelineSpan span = {};
  friend bool operator==(const TimedOp&, const TimedOp&) = default;
};

// The message that a transfer is an end of.
inline PipelineOp send_of(PipelineOp op) {
  if (op.kind == PipelineOpKind::kReceiveForward) {
    op.kind = PipelineOpKind::kSendForward;
    --op.stage;
  } else if (op.kind == PipelineOpKind::kReceiveBackward) {
    op.kind = PipelineOpKind::kSendBackward;
    ++op.stage;
  }
  return op;
}

// A rank's operations at their costs. Looks at what it reads: a message that is not there is an
// error.
class VirtualWork final : public PipelineWork {
 public:
  VirtualWork(const PipelineSchedule& schedule, const PipelineCosts& costs, int rank,
              VirtualRanks& time)
      : schedule_(schedule), costs_(costs), rank_(rank), time_(time) {}

  Status run(const PipelineOp& op) override {
    GW_TRY(look(op));
    const std::int64_t begin = time_.now();
    if (op.kind == PipelineOpKind::kReduceGradients) {
      reductions_[op.stage] = time_.reduce(rank_, ticks_of(op));
      if (!costs_.overlap) GW_TRY(time_.sleep_until_tick(reductions_[op.stage]));
      done.push_back({op, {begin, time_.now()}});
      return {};
    }
    if (op.kind == PipelineOpKind::kOptimizerStep && reductions_.contains(op.stage) &&
        reductions_[op.stage] > begin) {
      return {Code::kInternal, "a step before its gradients are reduced"};
    }
    const std::vector<PipelineOp> others = met_ops(schedule_, op);
    if (others.empty()) {
      GW_TRY(time_.spend(ticks_of(op)));
      done.push_back({op, {begin, time_.now()}});
      return {};
    }
    std::int64_t ticks = ticks_of(op);
    for (const PipelineOp& other : others) ticks = std::max(ticks, ticks_of(other));
    // Both ends of a pipe, or all pipes of a stage.
    const int which = op.kind == PipelineOpKind::kReduceReplicas ? int{op.stage} : int{op.pipe};
    GW_TRY(
        time_.meet({static_cast<int>(op.kind), which}, 1 + static_cast<int>(others.size()), ticks));
    done.push_back({op, {time_.now() - ticks, time_.now()}});
    return {};
  }
  Status finish(const PipelineOp& reduction) override {
    return time_.sleep_until_tick(reductions_.at(reduction.stage));
  }
  Result<std::span<std::byte>> room_for(const PipelineOp&) override {
    return std::span<std::byte>();
  }
  Result<std::span<const std::byte>> message(const PipelineOp& send) override {
    unsent.insert(send);
    return std::span<const std::byte>();
  }
  void sent(const PipelineOp& send) override {
    if (!time_.arrived(send)) ++freed_early;
    unsent.erase(send);
  }

  std::vector<TimedOp> done;
  std::set<PipelineOp> unsent;  // memory that is not free
  int freed_early = 0;

 private:
  // What a computation reads from another rank must have arrived.
  Status look(const PipelineOp& op) {
    PipelineOp receive = op;
    if (op.kind == PipelineOpKind::kForward) receive.kind = PipelineOpKind::kReceiveForward;
    if (gives_input_gradient(op.kind)) receive.kind = PipelineOpKind::kReceiveBackward;
    receive.version = 0;  // messages have none
    if (receive.kind == op.kind || met_ops(schedule_, receive).empty()) return {};
    if (time_.arrived(send_of(receive))) return {};
    return {Code::kInternal, "reads " + to_string(receive) + " before it has arrived"};
  }
  std::int64_t ticks_of(const PipelineOp& op) const {
    const PipelineStageCost& stage = costs_.stages[op.stage];
    switch (op.kind) {
      case PipelineOpKind::kForward: return stage.forward;
      case PipelineOpKind::kBackward: return stage.backward_input + stage.backward_weight;
      case PipelineOpKind::kBackwardInput: return stage.backward_input;
      case PipelineOpKind::kBackwardWeight: return stage.backward_weight;
      case PipelineOpKind::kRecompute: return stage.recompute;
      case PipelineOpKind::kReduceGradients: return stage.reduce_gradients;
      case PipelineOpKind::kReduceTied: return stage.reduce_tied;
      case PipelineOpKind::kReduceReplicas: return stage.reduce_replicas;
      case PipelineOpKind::kUnshard: return stage.unshard;
      case PipelineOpKind::kReshard: return stage.reshard;
      case PipelineOpKind::kOptimizerStep: return stage.optimizer_step;
      default: return 0;
    }
  }

  const PipelineSchedule& schedule_;
  const PipelineCosts& costs_;
  int rank_;
  VirtualRanks& time_;
  std::map<int, std::int64_t> reductions_;  // by stage: when they have ended
};

// A rank's ends of messages. `drops`: the number of the wait that returns at once, from 0.
class VirtualTransfers final : public PipelineTransfers {
 public:
  VirtualTransfers(int rank, VirtualRanks& time, int drops = -1)
      : rank_(rank), time_(time), drops_(drops) {}

  Status prepare(std::size_t count) override {
    sends_.resize(count);
    return {};
  }
  Status send(std::size_t number, const PipelineOp& op, int peer,
              std::span<const std::byte>) override {
    sends_[number] = op;
    time_.issue(op, rank_, peer);
    begun.push_back({op, {time_.now(), time_.now()}});
    return {};
  }
  Status receive(std::size_t number, const PipelineOp& op, int peer,
                 std::span<std::byte>) override {
    sends_[number] = send_of(op);
    time_.post(send_of(op), peer, rank_);
    begun.push_back({op, {time_.now(), time_.now()}});
    return {};
  }
  Result<bool> done(std::size_t number) override { return time_.arrived(sends_[number]); }
  Status wait(std::size_t number) override {
    const bool waits_for_it = !time_.arrived(sends_[number]);
    waits.push_back(waits_for_it);
    if (static_cast<int>(waits.size()) - 1 == drops_) return {};
    return time_.wait(sends_[number]);
  }
  void stop() override {}

  std::vector<TimedOp> begun;
  std::vector<bool> waits;  // for each of them: it had to

 private:
  int rank_;
  VirtualRanks& time_;
  int drops_;
  std::vector<PipelineOp> sends_;  // by number: the message
};

}  // namespace gradwire
