// A pipeline schedule under virtual time: whole ticks of any length, so that results are exact and
// compare with closed forms by ==.
//
//   a rank       does its list in order, one operation at a time; a computation starts when the
//                rank is free and what it reads is there
//   a message    of n bytes starts when its send has been issued, its receive posted, and the
//                sender's out-port and the receiver's in-port are free; keeps both for n * beta,
//                and arrives alpha + n * beta after its start. Ports are given by (time when the
//                message was ready, sender, forward before backward, pipe, sending stage,
//                micro-batch)
//   ordered      instead of ports each rank has one queue of transfers; a message starts when it is
//                first in both ranks' queues, and leaves them when it arrives
//   a schedule   without transfers sends at the end of the operation that makes the message, and
//                has its receives posted from the beginning
//   overlap      on: a send is issued and RG is started, and the rank goes on; OPT waits for the
//                stage's RG; a rank's RGs run one after another. Off: the rank waits until the
//                message has arrived, or RG is done; a send with a tag is then buffered at its
//                other end and does not wait for its receive
//   RT, RR       start when all their ranks have come to them
#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/status.h"
#include "trainer/pipeline/progress.h"
#include "trainer/pipeline/schedule.h"

namespace gradwire {

// Of one stage; all are at least 0. Times in ticks, lengths in bytes.
struct PipelineStageCost {
  std::int64_t forward = 1;
  // B costs both. Source: the sum that Qi et al., "Zero bubble pipeline parallelism", ICLR 2024,
  // split.
  std::int64_t backward_input = 1;
  std::int64_t backward_weight = 1;
  std::int64_t recompute = 1;
  std::int64_t reduce_gradients = 0;
  std::int64_t reduce_tied = 0;
  std::int64_t reduce_replicas = 0;
  std::int64_t unshard = 0;
  std::int64_t reshard = 0;
  std::int64_t optimizer_step = 0;
  std::int64_t output_bytes = 0;   // to the next stage, a micro-batch
  std::int64_t input_bytes = 0;    // of the gradient to the stage before; kept until R, too
  std::int64_t context_bytes = 0;  // kept for the backward of a micro-batch
  std::int64_t weight_bytes = 0;   // the part of context_bytes that I leaves for W
};

// Between two ranks. Source: the alpha-beta model of Hockney, Parallel Computing 1994.
struct PipelineLink {
  std::int64_t alpha = 0;  // ticks a message
  std::int64_t beta = 0;   // ticks a byte
};

struct PipelineCosts {
  std::vector<PipelineStageCost> stages = {};           // by stage, one for each
  PipelineLink link = {};                               // of all pairs of ranks
  std::vector<std::vector<PipelineLink>> link_of = {};  // [sender][receiver]; empty: `link`
  PipelineLinks links = PipelineLinks::kDirect;         // how the schedule was lowered
  bool overlap = true;
};

// All stages alike; forward, backward for inputs, backward for weights, in ticks.
PipelineCosts even_costs(int stages, std::int64_t forward, std::int64_t backward_input,
                         std::int64_t backward_weight);

// When an operation had its rank, in ticks. A transfer that the rank does not wait for, and RG
// under overlap, take none.
struct PipelineSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t ticks() const { return end - begin; }
  friend bool operator==(const PipelineSpan&, const PipelineSpan&) = default;
};

struct PipelineMessage {
  PipelineOp send = {};  // SF or SB
  int from = 0;          // ranks
  int to = 0;
  std::int64_t bytes = 0;
  std::int64_t ready = 0;  // ticks: issued, and the receive posted
  PipelineSpan span = {};  // from its start until it has arrived
};

// Bytes that a rank has to have.
struct PipelineMemory {
  // As a run holds them: each stage of the rank has room for the most of its contexts at a time,
  // and keeps it while another stage has its most.
  std::int64_t contexts = 0;
  // The most at a time:
  std::int64_t sends = 0;     // from the send's issue until it has arrived
  std::int64_t receives = 0;  // from the post (without one: the message's start) until it is read
  std::int64_t total = 0;     // contexts, and the most of sends and receives together
};

struct PipelineSimulation {
  std::int64_t makespan = 0;            // ticks until all is done
  std::vector<std::int64_t> busy = {};  // by rank: ticks in operations, waiting not included
  std::vector<std::vector<PipelineSpan>> spans = {};       // [rank][operation]
  std::vector<std::vector<PipelineSpan>> reductions = {};  // [rank]: RGs that ran beside
  std::vector<PipelineMessage> messages = {};              // in the order of their starts
  std::vector<PipelineMemory> memory = {};                 // by rank

  std::int64_t busy_total() const;  // over ranks
  std::int64_t idle_total() const;  // ranks * makespan - busy_total()
  // Idle over busy: (p - 1) / m of GPipe and 1F1B; and idle over all: (p - 1) / (m + p - 1).
  double bubble_of_busy() const;
  double bubble_of_all() const;
};

// kInvalidArgument: a schedule that check_pipeline() refuses, costs below 0, of another number of
// stages, or that add up to 2^62 ticks and more.
Result<PipelineSimulation> simulate_pipeline(const PipelineSchedule& schedule,
                                             const PipelineCosts& costs);

}  // namespace gradwire
