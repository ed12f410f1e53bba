// What one parameter server holds: its blocks, each with a version, and, where it is asked for, the
// ordered log of what was applied to them.
//
// A push is applied under one lock, so pushes have an order, the log's. Each block has a lock and a
// version of its own beside it: a pull copies block by block while a push is under way in others,
// never sees half a push in a block, and says which version of each block it has. From a
// whole log and the versions anybody can compute the run again, bit for bit.
//
//   x <- the optimizer's step from x along g with rate     rate = lr, or lr / max(1, staleness)
//
// Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014
// (keys, versions); Zhang, Gupta, Lian, Liu, "Staleness-aware async-SGD for distributed deep
// learning", IJCAI 2016, equation (6) (the rate divided by the staleness).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "adapters/trainer/modes/server/key_blocks.h"
#include "gradwire/status.h"
#include "trainer/optimizers/optimizer.h"

namespace gradwire {

// A push that was applied.
struct Application {
  int worker = 0;
  std::int64_t step = 0;                // of the worker, the last one that is in this push
  std::vector<std::int64_t> base = {};  // version of each block that the gradient was computed at
  std::int64_t lead = 0;  // steps that the worker was ahead of the slowest at its pull
  // By apply(): pushes that were applied in between (this one's place in the order, less the oldest
  // of base), and what its gradient was multiplied by.
  std::int64_t staleness = 0;
  double rate = 0;
};

struct ShardOptions {
  OptimizerOptions optimizer = {};
  bool damped = false;       // divides the rate by the staleness
  std::size_t log_most = 0;  // pushes that the log keeps, the last ones
};

// Of all pushes that were applied.
struct PushCounts {
  std::int64_t pushes = 0;
  double staleness = 0;  // their sum
  std::int64_t most_staleness = 0;
  std::int64_t most_lead = 0;
};

// Every function is thread-safe.
class ParameterShard {
 public:
  // values: of all blocks, one after another; borrowed, and the shard's alone for its life.
  // Errors as optimizer_within(), of a block.
  static Result<std::unique_ptr<ParameterShard>> create(const ParameterTable& table,
                                                        std::vector<KeyBlock> blocks,
                                                        std::span<float> values,
                                                        const ShardOptions& options);

  std::size_t block_count() const { return blocks_.size(); }
  // The values, and each block's version: how many pushes it has seen.
  void read(std::span<float> out, std::span<std::int64_t> versions);
  // Applies one push with what it says of itself, and counts it.
  Status apply(Application push, std::span<const float> gradient, double lr);

  // What the blocks' optimizers keep, their steps too: to be saved, or written to and then adopted,
  // while nobody applies. Versions and the log begin anew.
  std::vector<NamedTensor> state();
  void adopt_state();

  // In the order of application, the last ShardOptions::log_most; once nobody applies any more.
  std::vector<Application> log() const { return {log_.begin(), log_.end()}; }
  // Likewise, of all.
  const PushCounts& counts() const { return counts_; }
  // How often apply() found another one inside: 0, or the lock is none.
  int overlaps() const { return overlaps_; }

 private:
  struct Guarded {
    std::mutex mutex;
    std::int64_t version = 0;
    std::unique_ptr<Optimizer> optimizer;
  };
  ParameterShard(std::vector<KeyBlock> blocks, std::span<float> values,
                 const ShardOptions& options);
  void note(Application push);

  const std::vector<KeyBlock> blocks_;
  const std::span<float> values_;
  const bool damped_;
  const std::size_t log_most_;
  std::vector<std::unique_ptr<Guarded>> guards_;  // by block
  std::mutex order_;
  PushCounts counts_;
  std::deque<Application> log_;
  std::atomic<int> inside_ = 0;
  std::atomic<int> overlaps_ = 0;
  std::vector<std::int64_t> saved_steps_;  // of each block's optimizer, as state() shows them
};

}  // namespace gradwire
