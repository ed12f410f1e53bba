// A training job without a model: ranks as threads, known gradients in, means out. What every
// test of the aggregator needs, once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/group_communicator.h"
#include "gradwire/aggregator.h"
#include "gradwire/communicator.h"
#include "tests/support/default_gradient.h"

namespace gradwire::testing {

// Runs body on one thread per rank, each with its communicator; returns their outcomes by rank.
// A body may destroy its communicator: that is a rank that leaves.
using RankBody = std::function<Status(std::unique_ptr<Communicator>& communicator)>;
std::vector<Status> on_ranks(int size, const RankBody& body,
                             const CommunicatorOptions& options = {});

struct JobTensor {
  std::string name;
  Shape shape;
};

// An entry of a state() that outlives its aggregator.
struct SavedTensor {
  std::string name;
  Shape shape;
  DType dtype;
  std::vector<std::byte> bytes;
  friend bool operator==(const SavedTensor&, const SavedTensor&) = default;
};
using Saved = std::vector<SavedTensor>;

struct Job {
  std::string compressor = "none";
  std::vector<JobTensor> tensors;
  int ranks = 1;
  int steps = 1;
  std::int64_t bucket_bytes = 4 << 20;
  std::string algorithm = "canonical";
  bool allow_unsafe = false;
  int threads = 1;
  AggregateForm form = AggregateForm::kAllReduce;
  std::vector<int> node_of;      // by rank; empty: nobody knows
  double deadline_seconds = 15;  // of the ranks' operations
  bool permute = true;           // ready() in another order on every rank and step
  bool contiguous = false;       // gradients one after another in memory
  Device device = {};            // where gradients lie, on every rank
  int restart_after = 0;  // so many steps, then everything is built anew from state(); 0: never
  std::uint64_t seed = 1;
  std::function<Registry(int rank)> registry;  // default: the built-in methods
  // Element `e` of `tensor` on `rank` at `step`; default: see default_gradient().
  std::function<float(const std::string& tensor, int rank, int step, std::int64_t e)> gradient;
  // Before a step: the loss scale that the aggregator is told, and whether this rank's gradients
  // overflowed, so that the step is left out and has no mean.
  std::function<double(int step)> loss_scale;
  std::function<double(int step)> learning_rate;  // likewise
  std::function<bool(int rank, int step)> overflow;
  // Collective: adds what a rank's communicator has beside messages; default: nothing.
  std::function<Status(GroupCommunicator& world)> join;
  // State to start from, by old rank: of f32 entries, or whole.
  std::vector<std::map<std::string, std::vector<float>>> start;
  std::vector<Saved> start_saved;
};

using Flat = std::vector<float>;  // all tensors of a job, one after another
struct JobOutcome {
  Status status;                 // the first rank's that is not ok
  std::vector<Status> statuses;  // by rank
  std::vector<Flat> means;       // by step, of rank 0; of scattered ones every rank's shard
  int first_difference = -1;     // the first step after which the ranks' means differ in a bit
  std::vector<double> sum_of_means;
  std::vector<double>
      sum_of_averages;  // of the gradients that went in; of gathered ones of owners'
  std::vector<std::map<std::string, Flat>> state;  // by rank, f32 entries, after the last step
  std::vector<Saved> saved;                        // by rank, all of it
  std::vector<AggregateStats> stats;               // by rank
  std::vector<AggregateStats> stats_of_last_step;  // by rank: stats less those one step earlier
  std::vector<std::string> warnings;               // of rank 0
};
JobOutcome run_job(const Job& job);
// One rank of a job over a communicator of the caller's, of job.ranks ranks: its means by step.
Result<std::vector<Flat>> run_rank(const Job& job, Communicator& communicator);

// (1/n) (sum over ranks of ".error" + ".error2" joined) + ".shard_error" joined, and of what is
// kept between nodes (1/nodes) (".outer.error" + ".outer.error2" joined), whatever holds them; flat
// as the means.
std::vector<double> average_residual(const Job& job, const JobOutcome& outcome);

}  // namespace gradwire::testing
