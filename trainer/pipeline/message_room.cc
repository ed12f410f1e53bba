#include "trainer/pipeline/message_room.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace gradwire {
namespace {

using Kind = PipelineOpKind;
using Ended = std::vector<std::size_t>;  // by rank: operations at the front of its list

PipelineOp op_of(Kind kind, int stage, const PipelineOp& like) {
  PipelineOp op = like;
  op.kind = kind;
  op.stage = static_cast<std::uint16_t>(stage);
  op.version = 0;
  return op;
}

// Where operations stand in their ranks' lists, without their versions.
std::map<PipelineOp, std::size_t> places_of(const PipelineSchedule& schedule) {
  std::map<PipelineOp, std::size_t> places;
  for (const auto& ops : schedule.ranks) {
    for (std::size_t index = 0; index < ops.size(); ++index) {
      places.emplace(op_of(ops[index].kind, ops[index].stage, ops[index]), index);
    }
  }
  return places;
}

bool is_stage(const PipelineSchedule& schedule, int stage) {
  return stage >= 0 && stage < schedule.stages();
}

int rank_of(const PipelineSchedule& schedule, const PipelineOp& like, int stage) {
  return schedule.rank_of[like.pipe][static_cast<std::size_t>(stage)];
}

// The send of the message that a computation reads; none: it is made on its own rank, or nowhere.
std::optional<PipelineOp> send_to(const PipelineSchedule& schedule, const PipelineOp& op) {
  const bool forward = op.kind == Kind::kForward;
  if (!forward && !gives_input_gradient(op.kind)) return std::nullopt;
  const int from = forward ? op.stage - 1 : op.stage + 1;
  if (!is_stage(schedule, from) || rank_of(schedule, op, from) == schedule.holder(op)) {
    return std::nullopt;
  }
  return op_of(forward ? Kind::kSendForward : Kind::kSendBackward, from, op);
}

// The stage that reads what a computation makes; of none, not a stage.
int reading_stage(const PipelineOp& op) {
  return op.kind == Kind::kForward ? op.stage + 1 : op.stage - 1;
}

bool makes_message(const PipelineSchedule& schedule, const PipelineOp& op) {
  if (op.kind != Kind::kForward && !gives_input_gradient(op.kind)) return false;
  return is_stage(schedule, reading_stage(op)) &&
         rank_of(schedule, op, reading_stage(op)) != schedule.holder(op);
}

// What of all lists has ended when operations start, whatever they cost: all that stands before
// them, and what had ended at the making of what they read.
class Causes {
 public:
  explicit Causes(const PipelineSchedule& schedule)
      : schedule_(schedule),
        next_(schedule.ranks.size()),
        known_(schedule.ranks.size(), Ended(schedule.ranks.size())),
        of_reader_(schedule.ranks.size()) {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (std::size_t at = 0; at < next_.size(); ++at) goes_on = run(at) || goes_on;
    }
  }
  // At operation `index` of a rank's list, which makes a message: what has ended of the list of the
  // rank that reads it.
  std::size_t of_reader(int rank, std::size_t index) const {
    return of_reader_[static_cast<std::size_t>(rank)][index];
  }

 private:
  bool run(std::size_t at) {
    const std::vector<PipelineOp>& ops = schedule_.ranks[at];
    const std::size_t begin = next_[at];
    for (; next_[at] < ops.size(); ++next_[at]) {
      const PipelineOp& op = ops[next_[at]];
      Ended& known = known_[at];
      known[at] = next_[at];
      if (const auto send = send_to(schedule_, op)) {
        const auto sent = sent_.find(*send);
        if (sent == sent_.end()) break;
        for (std::size_t i = 0; i < known.size(); ++i) {
          known[i] = std::max(known[i], sent->second[i]);
        }
        sent_.erase(sent);  // one computation reads it
      }
      if (op.kind == Kind::kSendForward || op.kind == Kind::kSendBackward) {
        sent_.emplace(op_of(op.kind, op.stage, op), known);
      }
      const bool makes = makes_message(schedule_, op);
      const auto reader = static_cast<std::size_t>(makes ? rank_of(schedule_, op, reading_stage(op))
                                                         : schedule_.holder(op));
      of_reader_[at].push_back(known[reader]);
    }
    return next_[at] > begin;
  }

  const PipelineSchedule& schedule_;
  std::vector<std::size_t> next_;
  std::vector<Ended> known_;
  std::map<PipelineOp, Ended> sent_;                 // and not yet read
  std::vector<std::vector<std::size_t>> of_reader_;  // by rank and operation
};

// Follows one rank's list.
class RoomCount {
 public:
  using Places = std::map<PipelineOp, std::size_t>;
  RoomCount(const PipelineSchedule& schedule, int rank, const Places& places, const Causes& causes)
      : schedule_(schedule),
        rank_(rank),
        places_(places),
        causes_(causes),
        now_(static_cast<std::size_t>(schedule.stages())) {
    const std::vector<PipelineOp>& ops = schedule.ranks[static_cast<std::size_t>(rank)];
    room_.stages.resize(now_.size());
    room_.read.resize(ops.size());
    room_.send.resize(ops.size(), MessageRoom::kNoSend);
    for (std::size_t index = 0; index < ops.size(); ++index) follow(ops[index], index);
  }
  MessageRoom room() && { return std::move(room_); }

 private:
  struct Sent {
    std::size_t turn = 0;    // of the send
    std::size_t reader = 0;  // in the peer's list
  };

  void follow(const PipelineOp& op, std::size_t index) {
    const bool forward = op.kind == Kind::kForward;
    if (op.kind == Kind::kReceiveForward) count(op.stage, &StageRoom::activations_in, 1);
    if (op.kind == Kind::kReceiveBackward) count(op.stage, &StageRoom::gradients_in, 1);
    if (!forward && !gives_input_gradient(op.kind)) return;
    const auto out = forward ? &StageRoom::activations_out : &StageRoom::gradients_out;
    read(op, forward, out);
    make(op, index, reading_stage(op), out);
  }
  // What the computation reads is free when what it makes is written.
  void read(const PipelineOp& op, bool forward, int StageRoom::*out) {
    const int from = forward ? op.stage - 1 : op.stage + 1;
    if (!is_stage(schedule_, from)) return;
    if (rank_of(schedule_, op, from) == rank_) return count(from, out, -1);
    count(op.stage, forward ? &StageRoom::activations_in : &StageRoom::gradients_in, -1);
  }
  void make(const PipelineOp& op, std::size_t index, int to, int StageRoom::*out) {
    if (!is_stage(schedule_, to)) return;
    if (rank_of(schedule_, op, to) != rank_) {
      const bool forward = op.kind == Kind::kForward;
      std::vector<Sent>& unread = unread_[{op.stage, forward}];
      const std::size_t ended = causes_.of_reader(rank_, index);
      std::erase_if(unread, [&](const Sent& sent) {
        if (ended <= sent.reader) return false;
        room_.read[index].push_back(sent.turn);
        count(op.stage, out, -1);
        return true;
      });
      const Kind send = forward ? Kind::kSendForward : Kind::kSendBackward;
      room_.send[index] = places_.at(op_of(send, op.stage, op));
      unread.push_back({room_.send[index], reader_of(op, to)});
    }
    count(op.stage, out, 1);
  }
  // Where the computation stands that reads what `op` makes.
  std::size_t reader_of(const PipelineOp& op, int to) const {
    if (op.kind == Kind::kForward) return places_.at(op_of(Kind::kForward, to, op));
    const auto whole = places_.find(op_of(Kind::kBackward, to, op));
    return whole != places_.end() ? whole->second : places_.at(op_of(Kind::kBackwardInput, to, op));
  }
  void count(int stage, int StageRoom::*what, int by) {
    const auto at = static_cast<std::size_t>(stage);
    now_[at].*what += by;
    room_.stages[at].*what = std::max(room_.stages[at].*what, now_[at].*what);
  }

  const PipelineSchedule& schedule_;
  int rank_;
  const Places& places_;
  const Causes& causes_;
  std::vector<StageRoom> now_;
  std::map<std::pair<int, bool>, std::vector<Sent>> unread_;  // by stage, and whether forward
  MessageRoom room_;
};

}  // namespace

MessageRoom message_room(const PipelineSchedule& schedule, int rank) {
  const Causes causes(schedule);
  return RoomCount(schedule, rank, places_of(schedule), causes).room();
}

std::vector<MessageRoom> message_rooms(const PipelineSchedule& schedule) {
  const Causes causes(schedule);
  const auto places = places_of(schedule);
  std::vector<MessageRoom> rooms;
  for (int rank = 0; rank < schedule.size(); ++rank) {
    rooms.push_back(RoomCount(schedule, rank, places, causes).room());
  }
  return rooms;
}

bool forwards_may_wait(const PipelineSchedule& schedule) {
  if (schedule.pipes() != 1 || schedule.stages() != schedule.size()) return false;
  std::vector<std::vector<int>> orders(static_cast<std::size_t>(schedule.stages()));
  for (const auto& ops : schedule.ranks) {
    for (const PipelineOp& op : ops) {
      if (op.kind == Kind::kForward) orders[op.stage].push_back(op.micro);
    }
  }
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    if (schedule.rank_of.front()[at] != stage || orders[at] != orders.front()) return false;
  }
  return true;
}

}  // namespace gradwire
