#include <algorithm>
#include <array>

#include "trainer/pipeline/generators/generators.h"
#include "trainer/pipeline/generators/v_run.h"

namespace gradwire {
namespace {

// Ticks by which a pass goes on from rank to rank, and those between the starts of two passes where
// one follows the other on one rank: forward down, forward back, gradient down, gradient back.
struct VBlock {
  std::array<int, 4> delays = {};
  std::array<int, 3> gaps = {1, 1, 1};  // at the last rank, rank 0, the last rank
  int contexts = 0;                     // of a rank, in chunks
};

// One micro-batch's F and I on every rank, at ticks such that those of all micro-batches, one every
// 6 ticks, never meet on a rank: 2 of 6 are left for W. The fewer ticks between F and I, the fewer
// contexts there are. Ranks take F and I in that order, as early as they can; W, where they would
// wait or have no room.
class RepeatedBlock {
 public:
  RepeatedBlock(int ranks, int micro_batches, const VBlock& block)
      : run_(ranks, micro_batches), contexts_(block.contexts) {
    for (int rank = 0; rank < ranks; ++rank) ranks_.push_back({passes_of(rank, block)});
  }

  PipelineSchedule schedule() && {
    for (; run_.goes_on(); run_.tick()) {
      for (int rank = 0; rank < run_.ranks(); ++rank) start(rank);
    }
    return std::move(run_).schedule();
  }

 private:
  static constexpr std::int64_t kPeriod = 6;
  struct Pass {
    std::int64_t tick;
    bool forward;
    int chunk;
  };
  struct RankState {
    std::vector<Pass> passes;
    std::size_t next = 0;
  };

  std::vector<Pass> passes_of(int rank, const VBlock& block) const {
    const int last = run_.ranks() - 1;
    std::array<int, 4> ticks{};
    int at_end = 0;  // of the passes so far
    for (std::size_t pass = 0; pass < ticks.size(); ++pass) {
      const bool down = pass % 2 == 0;
      const int begin = pass == 0 ? 0 : at_end + block.gaps[pass - 1];
      ticks[pass] = begin + block.delays[pass] * (down ? rank : last - rank);
      at_end = begin + block.delays[pass] * last;
    }
    std::vector<Pass> passes;
    for (std::int64_t micro = 0; micro < run_.micro_batches(); ++micro) {
      const std::int64_t begin = micro * kPeriod;
      passes.push_back({begin + ticks[0], true, 0});
      passes.push_back({begin + ticks[1], true, 1});
      passes.push_back({begin + ticks[2], false, 1});
      passes.push_back({begin + ticks[3], false, 0});
    }
    std::ranges::sort(passes, {}, &Pass::tick);
    return passes;
  }

  void start(int rank) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    if (state.next < state.passes.size() && start(rank, state.passes[state.next])) {
      ++state.next;
    } else {
      run_.start_weight(rank);
    }
  }

  bool start(int rank, const Pass& pass) {
    const int stage = run_.stage_of(rank, pass.chunk);
    if (!pass.forward) return run_.start_input(rank, stage);
    return run_.open(rank) < contexts_ && run_.start_forward(rank, stage);
  }

  VPipelineRun run_;
  int contexts_;
  std::vector<RankState> ranks_;
};

}  // namespace

PipelineSchedule zero_bubble_v_half_schedule(int ranks, int micro_batches) {
  // With an even number of ranks passes would meet if the last one followed at once.
  const VBlock block{.delays = {1, 2, 1, 2},
                     .gaps = {1, 1, ranks % 2 == 0 ? 5 : 2},
                     .contexts = 2 * ((ranks + 2) / 2)};
  return RepeatedBlock(ranks, micro_batches, block).schedule();
}

PipelineSchedule zero_bubble_v_min_schedule(int ranks, int micro_batches) {
  // In a multiple of 3 ranks a pass and the one two behind it would meet.
  const int gap = ranks % 3 == 0 ? 3 : 1;
  const VBlock block{
      .delays = {1, 1, 1, 1}, .gaps = {gap, 1, gap}, .contexts = 2 * ((ranks + 4) / 3)};
  return RepeatedBlock(ranks, micro_batches, block).schedule();
}

}  // namespace gradwire
