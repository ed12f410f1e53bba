// Runs one rank's list of a lowered schedule: what is checked and simulated is what runs.
//
//   a computation  waits for the message that it reads, if there is one, then for nothing
//   RF, RB         are posted where the list has them; nobody waits there
//   SF, SB         are issued, and the rank goes on; what they send stays until they have ended
//   RG             is started, and the rank goes on; OPT waits for the RGs of its stage
//   the end        of the list waits for all that is under way
//
// Where room for messages is bounded a computation waits before it makes one more.
//
// Without overlap sends, RG and (kOrdered) receives are waited for where they stand; under kTagged
// that is for links alone that keep a message until its receive is posted. These are the rules of
// simulate.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "trainer/pipeline/message_room.h"
#include "trainer/pipeline/progress.h"
#include "trainer/pipeline/run/transfers.h"
#include "trainer/pipeline/run/work.h"
#include "trainer/pipeline/schedule.h"

namespace gradwire {

struct PipelineExecution {
  PipelineLinks links = PipelineLinks::kTagged;  // how the schedule was lowered
  bool overlap = true;
  // For each stage: the most messages that have been made and whose sends have not been waited for.
  // Where there would be more, a computation waits first: for sends whose messages must have been
  // read by then (message_room()), then for the oldest. Empty: any number.
  std::vector<StageRoom> room = {};
};

// When a computation ran, waits not included, or a message was under way: from the issue of its
// send until the executor knew of its end.
struct PipelineOpTime {
  PipelineOp op = {};  // of a message: SF or SB
  int to = -1;         // of a message: its receiver
  std::chrono::steady_clock::time_point begin = {};
  std::chrono::steady_clock::time_point end = {};
};
// Called on the thread that executes.
using OnPipelineOp = std::function<void(const PipelineOpTime& time)>;

// From one thread. Allocates at its birth alone.
class PipelineExecutor {
 public:
  // `schedule`: one that check_pipeline() accepts, or forward_part() of it. Read during the call;
  // `work` and `transfers` are borrowed for the executor's life. kInvalidArgument: no such rank; a
  // message that is read and never received, or the other way round; kDirect between several ranks;
  // less room than messages that are made before the first of them is sent.
  static Result<PipelineExecutor> create(const PipelineSchedule& schedule, int rank,
                                         const PipelineExecution& how, PipelineWork& work,
                                         PipelineTransfers& transfers);

  // The whole list, once. An error names the rank, the operation with its stage and micro-batch
  // and, of a message, its other end; nothing is under way on return, and every later call returns
  // the same error.
  Status run();

  std::size_t size() const { return turns_.size(); }  // operations of the list
  // Told of what run() does from now on; borrowed. Null: nobody is.
  void tell(const OnPipelineOp* told) { told_ = told; }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;
  struct Turn {
    PipelineOp op = {};
    int peer = -1;               // of a transfer
    std::size_t number = kNone;  // of a transfer: its own
    std::size_t reads = kNone;   // of a computation: the receive's turn
    // Of a computation: sends that have ended before it, in awaited_.
    std::size_t awaits_begin = 0;
    std::size_t awaits_end = 0;
    bool ended = false;                                // of a send: it has been waited for
    std::chrono::steady_clock::time_point begin = {};  // of a send, where somebody is told
  };

  PipelineExecutor(int rank, const PipelineExecution& how, PipelineWork& work,
                   PipelineTransfers& transfers)
      : rank_(rank), how_(how), work_(&work), transfers_(&transfers) {}
  Status plan(const PipelineSchedule& schedule);
  Status plan_waits(const PipelineSchedule& schedule);
  Status run_all();
  Status take(std::size_t turn);
  Status transfer(const Turn& turn, std::size_t index);
  Status compute(const Turn& turn);
  Status reduce(std::size_t turn);
  Status finish_reductions(const PipelineOp* of);
  Status wait_for(const Turn& turn);
  Status work_on(const PipelineOp& op);
  Status end_send(std::size_t turn);
  void free_send(Turn& send);
  Status reap(bool all);
  Status named(const Status& status, const PipelineOp& op, const Turn* message = nullptr) const;

  int rank_;
  PipelineExecution how_;
  PipelineWork* work_;
  PipelineTransfers* transfers_;
  std::vector<Turn> turns_;
  std::vector<std::size_t> awaited_;  // turns of sends
  std::size_t transfer_count_ = 0;
  // Turns under way, oldest first: sends from first_send_ on, and RGs.
  std::vector<std::size_t> sends_;
  std::size_t first_send_ = 0;
  std::vector<std::size_t> reductions_;
  Status status_;
  const OnPipelineOp* told_ = nullptr;
};

}  // namespace gradwire
