// Runs one rank's steps of a schedule without a flush, from drain to drain. The rules are
// executor.h's, with overlap and tagged messages: a receive is posted one computation ahead, also
// into the next step, and sends go on while later steps run. OPT is the caller's, between two
// steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "gradwire/status.h"
#include "trainer/pipeline/message_room.h"
#include "trainer/pipeline/run/executor.h"
#include "trainer/pipeline/run/transfers.h"
#include "trainer/pipeline/run/work.h"
#include "trainer/pipeline/stream_rule.h"

namespace gradwire {

// From one thread.
class StreamExecutor {
 public:
  // `work` and `transfers` are borrowed for the executor's life. `room`: the most messages of the
  // rank's stage at a time, at least 1 of each that there are; a computation waits before it makes
  // one more. wraps: numbers are modulo the rule's windows; else they are whole, of 65,535
  // micro-batches at most. kInvalidArgument: no such rank, or no room.
  static Result<StreamExecutor> create(const StreamRule& rule, int rank, const StageRoom& room,
                                       bool wraps, PipelineWork& work,
                                       PipelineTransfers& transfers);

  // Step `step` of `steps` between two drains, from 0: one after another, each with the same
  // `steps`. An error names the rank, the operation
  // with its stage and micro-batch and, of a message, its other end; nothing is under way on
  // return, and every later call returns the same error.
  Status run(std::int64_t step, std::int64_t steps);
  // Behind the last one: waits for all that is under way. Errors likewise.
  Status drain();
  // Told of what run() does from now on; borrowed. Null: nobody is.
  void tell(const OnPipelineOp* told) { told_ = told; }

 private:
  // A message under way.
  struct Message {
    PipelineOp op = {};
    int peer = 0;
    std::size_t number = 0;
    std::chrono::steady_clock::time_point begin = {};
  };

  StreamExecutor(const StreamRule& rule, int rank, const StageRoom& room, bool wraps,
                 PipelineWork& work, PipelineTransfers& transfers)
      : rule_(rule),
        rank_(rank),
        room_(room),
        wraps_(wraps),
        work_(&work),
        transfers_(&transfers) {}
  std::vector<PipelineOp> ops_of(std::int64_t step, std::int64_t steps) const;
  Status run_all(std::int64_t step, std::int64_t steps);
  Status take(const PipelineOp& op);
  Status post(const PipelineOp& reader);
  Status read(const PipelineOp& op);
  Status make_room(const PipelineOp& op);
  Status send(const PipelineOp& op);
  Status reap();
  Status end_send(std::deque<Message>& sends);
  void free_send(std::deque<Message>& sends);
  Status drain_all();
  int peer_of(const PipelineOp& op, bool reads) const;
  std::deque<Message>& sends_of(const PipelineOp& op);
  std::size_t take_number();
  Status named(const Status& status, const PipelineOp& op, const Message* message = nullptr) const;

  StreamRule rule_;
  int rank_;
  StageRoom room_;
  bool wraps_;
  PipelineWork* work_;
  PipelineTransfers* transfers_;
  std::deque<Message> receives_;  // posted and not read, oldest first
  std::deque<Message> forward_;   // sends, oldest first
  std::deque<Message> backward_;
  std::vector<bool> taken_;  // by number of a transfer: of sends, and of four receives
  Status status_;
  const OnPipelineOp* told_ = nullptr;
};

}  // namespace gradwire
