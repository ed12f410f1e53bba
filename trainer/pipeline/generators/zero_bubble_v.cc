#include <algorithm>
#include <array>
#include <optional>

#include "trainer/pipeline/generators/generators.h"
#include "trainer/pipeline/generators/v_run.h"

namespace gradwire {
namespace {

constexpr int kDown = 0;  // chunks
constexpr int kBack = 1;

// ZB-V. A rank begins with as many forwards as it may have contexts, without a gap: those of its
// first stage until the first micro-batch has come back to it, then both stages' in turns. The
// first gradient arrives just then. From there on each I is followed by a W and a forward, so that
// contexts are always as many, and in such turns every rank has what it needs when it needs it. In
// the end, when there are no forwards to make room for, W fill what would be idle.
class ZeroBubbleV {
 public:
  ZeroBubbleV(int ranks, int micro_batches) : run_(ranks, micro_batches) {
    for (int rank = 0; rank < ranks; ++rank) ranks_.push_back({.forwards = forwards_of(rank)});
  }

  PipelineSchedule schedule() && {
    for (; run_.goes_on(); run_.tick()) {
      for (int rank = 0; rank < run_.ranks(); ++rank) start(rank);
    }
    return std::move(run_).schedule();
  }

 private:
  struct RankState {
    // Chunks of the forwards in their order; nullopt: the turn of a chunk that has none left.
    std::vector<std::optional<int>> forwards = {};
    std::size_t next = 0;  // of them
    bool owes_weight = false;
    std::optional<int> owes_forward = {};  // chunk
  };

  std::vector<std::optional<int>> forwards_of(int rank) const {
    const int p = run_.ranks();
    std::vector<std::optional<int>> order;
    std::array<int, 2> left{run_.micro_batches(), run_.micro_batches()};  // by chunk
    const auto add = [&](int chunk) {
      int& of_chunk = left[static_cast<std::size_t>(chunk)];
      if (of_chunk > 0) {
        --of_chunk;
        order.emplace_back(chunk);
      } else if (order.size() >= first_forwards()) {
        order.emplace_back(std::nullopt);
      }
    };
    for (int i = 0; i < 2 * (p - rank) - 1; ++i) add(kDown);
    add(kBack);
    for (int i = 0; i < rank; ++i) {
      add(kDown);
      add(kBack);
    }
    for (int i = 0; i < p - 1 - rank; ++i) add(kBack);
    while (left[kDown] > 0 || left[kBack] > 0) {
      add(kDown);
      add(kBack);
    }
    return order;
  }
  // Those before the first gradient.
  std::size_t first_forwards() const { return 2 * static_cast<std::size_t>(run_.ranks()); }

  void start(int rank) {
    if (start_first_forward(rank) || start_owed(rank)) return;
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    if (!state.owes_weight && !state.owes_forward && start_input(rank)) return;
    run_.start_weight(rank);
  }

  bool start_first_forward(int rank) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    if (state.next >= std::min(first_forwards(), state.forwards.size())) return false;
    if (!run_.start_forward(rank, run_.stage_of(rank, *state.forwards[state.next]))) return false;
    ++state.next;
    return true;
  }

  bool start_owed(int rank) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    if (state.owes_weight) {
      state.owes_weight = !run_.start_weight(rank);
      return !state.owes_weight;
    }
    if (!state.owes_forward) return false;
    if (!run_.start_forward(rank, run_.stage_of(rank, *state.owes_forward))) return false;
    state.owes_forward.reset();
    return true;
  }

  // The first stage's before the second's: it is nearer to its micro-batch's end.
  bool start_input(int rank) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    if (!run_.start_input(rank, run_.stage_of(rank, kDown)) &&
        !run_.start_input(rank, run_.stage_of(rank, kBack))) {
      return false;
    }
    if (state.next < first_forwards() || state.next >= state.forwards.size()) return true;
    state.owes_forward = state.forwards[state.next++];
    state.owes_weight = state.owes_forward.has_value();
    return true;
  }

  VPipelineRun run_;
  std::vector<RankState> ranks_;
};

}  // namespace

PipelineSchedule zero_bubble_v_schedule(int ranks, int micro_batches) {
  return ZeroBubbleV(ranks, micro_batches).schedule();
}

}  // namespace gradwire
