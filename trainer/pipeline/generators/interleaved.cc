#include <algorithm>

#include "base/check.h"
#include "trainer/pipeline/generators/emit.h"
#include "trainer/pipeline/generators/generators.h"
#include "trainer/pipeline/progress.h"

namespace gradwire {
namespace {

struct ChunkPass {
  int chunk;
  int micro;
};

// The order in which every rank takes its chunks' forwards, and the one of the backwards.
struct ChunkOrders {
  std::vector<ChunkPass> forward;
  std::vector<ChunkPass> backward;
};

ChunkOrders chunk_orders(int ranks, int micro_batches, int chunks) {
  ChunkOrders orders;
  for (int begin = 0; begin < micro_batches; begin += ranks) {
    const int end = std::min(begin + ranks, micro_batches);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int micro = begin; micro < end; ++micro) {
        orders.forward.push_back({chunk, micro});
        orders.backward.push_back({chunks - 1 - chunk, micro});
      }
    }
  }
  return orders;
}

int warm_up_of(int ranks, int chunks, int rank) {
  return 2 * (ranks - rank - 1) + (chunks - 1) * ranks;
}

void emit_pass(PipelineSchedule& schedule, int rank, PipelineOpKind kind, const ChunkPass& pass) {
  emit(schedule, rank, kind, pass.chunk * schedule.size() + rank, pass.micro);
}

// The published form.
PipelineSchedule fixed_pattern(int ranks, int micro_batches, int chunks) {
  PipelineSchedule schedule = looped_placement(ranks, chunks, micro_batches);
  const ChunkOrders orders = chunk_orders(ranks, micro_batches, chunks);
  const std::size_t total = orders.forward.size();
  for (int rank = 0; rank < ranks; ++rank) {
    std::size_t forwards =
        std::min(static_cast<std::size_t>(warm_up_of(ranks, chunks, rank)), total);
    for (std::size_t i = 0; i < forwards; ++i) {
      emit_pass(schedule, rank, PipelineOpKind::kForward, orders.forward[i]);
    }
    for (const ChunkPass& backward : orders.backward) {
      if (forwards < total) {
        emit_pass(schedule, rank, PipelineOpKind::kForward, orders.forward[forwards++]);
      }
      emit_pass(schedule, rank, PipelineOpKind::kBackward, backward);
    }
  }
  return schedule;
}

// Ranks that take, in unit time, a backward where one can start, else a forward where a context is
// free, both in the order of ChunkOrders.
class EarlyBackwards {
 public:
  EarlyBackwards(int ranks, int micro_batches, int chunks)
      : schedule_(looped_placement(ranks, chunks, micro_batches)),
        orders_(chunk_orders(ranks, micro_batches, chunks)),
        chunks_(chunks),
        ranks_(static_cast<std::size_t>(ranks)),
        forward_end_(
            static_cast<std::size_t>(ranks * chunks) * static_cast<std::size_t>(micro_batches),
            kNever),
        backward_end_(forward_end_) {}

  PipelineSchedule run() {
    const auto most = static_cast<std::int64_t>(3 * forward_end_.size());  // one after another
    for (std::int64_t now = 0; started_ < 2 * forward_end_.size(); ++now) {
      GW_CHECK(now <= most);
      for (int rank = 0; rank < schedule_.size(); ++rank) {
        if (ranks_[static_cast<std::size_t>(rank)].free_at > now) continue;
        if (!start_backward(rank, now)) start_forward(rank, now);
      }
    }
    return std::move(schedule_);
  }

 private:
  static constexpr std::int64_t kNever = INT64_MAX;
  struct RankState {
    std::size_t forwards = 0;
    std::size_t backwards = 0;
    std::int64_t free_at = 0;
  };

  int stage_of(int rank, const ChunkPass& pass) const {
    return pass.chunk * schedule_.size() + rank;
  }
  std::size_t cell(int stage, int micro) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(schedule_.micro_batches) +
           static_cast<std::size_t>(micro);
  }

  bool start_backward(int rank, std::int64_t now) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    if (state.backwards == state.forwards) return false;
    const ChunkPass pass = orders_.backward[state.backwards];
    const int stage = stage_of(rank, pass);
    if (forward_end_[cell(stage, pass.micro)] > now) return false;
    const bool last = stage + 1 == schedule_.stages();
    if (!last && backward_end_[cell(stage + 1, pass.micro)] > now) return false;
    emit_pass(schedule_, rank, PipelineOpKind::kBackward, pass);
    backward_end_[cell(stage, pass.micro)] = state.free_at = now + 2;
    ++state.backwards;
    ++started_;
    return true;
  }

  void start_forward(int rank, std::int64_t now) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    const auto most = static_cast<std::size_t>(warm_up_of(schedule_.size(), chunks_, rank) + 1);
    if (state.forwards == orders_.forward.size() || state.forwards - state.backwards == most) {
      return;
    }
    const ChunkPass pass = orders_.forward[state.forwards];
    const int stage = stage_of(rank, pass);
    if (stage > 0 && forward_end_[cell(stage - 1, pass.micro)] > now) return;
    emit_pass(schedule_, rank, PipelineOpKind::kForward, pass);
    forward_end_[cell(stage, pass.micro)] = state.free_at = now + 1;
    ++state.forwards;
    ++started_;
  }

  PipelineSchedule schedule_;
  ChunkOrders orders_;
  int chunks_;
  std::vector<RankState> ranks_;
  std::vector<std::int64_t> forward_end_;  // by stage and micro-batch
  std::vector<std::int64_t> backward_end_;
  std::size_t started_ = 0;
};

}  // namespace

PipelineSchedule interleaved_schedule(int ranks, int micro_batches, int chunks) {
  PipelineSchedule schedule = fixed_pattern(ranks, micro_batches, chunks);
  if (micro_batches % ranks == 0 || blocked_frontier(schedule).empty()) return schedule;
  return EarlyBackwards(ranks, micro_batches, chunks).run();
}

}  // namespace gradwire
