// A pipeline whose ranks have two stages each, in V, under unit time: F, I and W take 1 tick. What
// may start is known here; what does start is a generator's choice.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace gradwire {

// Every stage takes its micro-batches in ascending order, in F, I and W alike.
class VPipelineRun {
 public:
  VPipelineRun(int ranks, int micro_batches);

  int ranks() const { return schedule_.size(); }
  int micro_batches() const { return schedule_.micro_batches; }
  // `chunk`: 0 on the way from rank 0 to the last one, 1 on the way back.
  int stage_of(int rank, int chunk) const {
    return chunk == 0 ? rank : schedule_.stages() - 1 - rank;
  }
  // Contexts of the rank: from F to W.
  int open(int rank) const { return ranks_[static_cast<std::size_t>(rank)].open; }

  // Each starts the stage's next F or I now, or the rank's oldest W, on a rank that does nothing
  // else in this tick; false: there is none, or what it reads is not there yet.
  bool start_forward(int rank, int stage);
  bool start_input(int rank, int stage);
  bool start_weight(int rank);

  // The next tick, until all has started; each tick something starts, or the generator has a
  // defect.
  bool goes_on() const { return started_ < total_; }
  void tick();

  // Once all is done.
  PipelineSchedule schedule() && { return std::move(schedule_); }

 private:
  struct StageDone {
    int forwards = 0;
    int inputs = 0;
    std::vector<std::int64_t> forward_end = {};  // by micro-batch, of those that have started
    std::vector<std::int64_t> input_end = {};
  };
  struct Waiting {
    int stage = 0;
    int micro = 0;
    std::int64_t since = 0;
  };
  struct RankState {
    std::deque<Waiting> weights = {};  // W that have not started, oldest I first
    int open = 0;
  };
  StageDone& done_at(int stage) { return stages_[static_cast<std::size_t>(stage)]; }
  const StageDone& done_at(int stage) const { return stages_[static_cast<std::size_t>(stage)]; }
  // Whether the micro-batch's is among them and has come.
  bool has_ended(const std::vector<std::int64_t>& ends, int micro) const {
    const auto at = static_cast<std::size_t>(micro);
    return at < ends.size() && ends[at] <= now_;
  }

  PipelineSchedule schedule_;
  std::vector<StageDone> stages_;
  std::vector<RankState> ranks_;
  std::int64_t now_ = 0;
  std::int64_t last_start_ = 0;
  std::int64_t started_ = 0;
  std::int64_t total_;
};

}  // namespace gradwire
