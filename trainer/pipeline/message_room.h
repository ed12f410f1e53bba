// How many messages of a boundary between stages a rank has memory for at a time, whatever the
// speed of the others: what is known before a step, since the schedule is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace gradwire {

// Messages of one stage at a time.
struct StageRoom {
  int activations_in = 0;  // from the post of a receive until the computation that reads it
  int activations_out = 0;
  int gradients_in = 0;
  int gradients_out = 0;

  int all() const { return activations_in + activations_out + gradients_in + gradients_out; }
  friend bool operator==(const StageRoom&, const StageRoom&) = default;
};

struct MessageRoom {
  std::vector<StageRoom> stages = {};  // by stage; none of other ranks' stages
  // By operation of the rank's list, of those that make a message: sends of the list, of earlier
  // messages of the same stage and direction, that must have been read when it starts, because what
  // the rank has received by then was made behind that. Each stands once.
  std::vector<std::vector<std::size_t>> read = {};
  // By operation: the send of the message that it makes for another rank, or kNoSend.
  static constexpr std::size_t kNoSend = SIZE_MAX;
  std::vector<std::size_t> send = {};
};

// What a rank sends has memory from its making until it is known to have been read (what goes to a
// stage of the same rank: until it is). `schedule`: lowered and valid, or forward_part() of such.
MessageRoom message_room(const PipelineSchedule& schedule, int rank);
// Of every rank: what one rank's costs and a little more.
std::vector<MessageRoom> message_rooms(const PipelineSchedule& schedule);

// Whether the forwards of a stage may wait until the next stage has read what they made earlier, so
// that evaluation has no more messages than training: every rank has one stage, and all forwards
// are in one order.
bool forwards_may_wait(const PipelineSchedule& schedule);

}  // namespace gradwire
