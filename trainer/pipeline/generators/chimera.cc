#include <algorithm>
#include <array>

#include "base/check.h"
#include "trainer/pipeline/generators/generators.h"

namespace gradwire {
namespace {

// Both pipes' passes of `together` micro-batches forward, and of one back, under unit time. A rank
// takes a backward where one can start, else a forward where a context is free, of the later stage
// first.
class BothWays {
 public:
  BothWays(int ranks, int micro_batches, int together)
      : schedule_(both_ways_placement(ranks, micro_batches)),
        each_(micro_batches / 2),
        together_(together),
        places_(2 * static_cast<std::size_t>(ranks)) {}

  PipelineSchedule run() {
    const std::int64_t total = std::int64_t{4} * schedule_.stages() * each_;
    for (; started_ < total; ++now_) {
      const std::int64_t before = started_;
      for (int rank = 0; rank < schedule_.size(); ++rank) start(rank);
      // What started a tick ago has ended: there would be no start later either.
      GW_CHECK(started_ > before);
    }
    return std::move(schedule_);
  }

 private:
  // A stage of a pipe.
  struct Place {
    int forwards = 0;  // micro-batches of the pipe that have started
    int backwards = 0;
    std::vector<std::int64_t> forward_end = {};  // by micro-batch of the pipe
    std::vector<std::int64_t> backward_end = {};
  };

  Place& place(int pipe, int stage) {
    return places_[static_cast<std::size_t>(pipe * schedule_.stages() + stage)];
  }
  bool has_ended(const std::vector<std::int64_t>& ends, int micro) const {
    const auto at = static_cast<std::size_t>(micro);
    return at < ends.size() && ends[at] <= now_;
  }

  bool can_go_back(int pipe, int stage) {
    const Place& here = place(pipe, stage);
    if (!has_ended(here.forward_end, here.backwards)) return false;
    return stage + 1 == schedule_.stages() ||
           has_ended(place(pipe, stage + 1).backward_end, here.backwards);
  }

  bool can_go_forward(int pipe, int stage) {
    const Place& here = place(pipe, stage);
    const int most = std::min(schedule_.stages() / 2, schedule_.stages() - stage) * together_;
    if (here.forwards == each_ || here.forwards - here.backwards + together_ > most) return false;
    return stage == 0 ||
           has_ended(place(pipe, stage - 1).forward_end, here.forwards + together_ - 1);
  }

  void start(int rank) {
    const int last = schedule_.stages() - 1;
    const std::array stages{rank, last - rank};  // by pipe
    const std::array pipes = stages[0] > stages[1] ? std::array{0, 1} : std::array{1, 0};
    for (const int pipe : pipes) {
      if (can_go_back(pipe, stages[static_cast<std::size_t>(pipe)])) {
        return go_back(pipe, stages[static_cast<std::size_t>(pipe)]);
      }
    }
    for (const int pipe : pipes) {
      if (can_go_forward(pipe, stages[static_cast<std::size_t>(pipe)])) {
        return go_forward(pipe, stages[static_cast<std::size_t>(pipe)]);
      }
    }
  }

  void go_back(int pipe, int stage) {
    Place& here = place(pipe, stage);
    emit(PipelineOpKind::kBackward, pipe, stage, here.backwards++);
    here.backward_end.push_back(now_ + 1);
  }
  void go_forward(int pipe, int stage) {
    Place& here = place(pipe, stage);
    for (int i = 0; i < together_; ++i) {
      emit(PipelineOpKind::kForward, pipe, stage, here.forwards++);
      here.forward_end.push_back(now_ + 1);
    }
  }
  void emit(PipelineOpKind kind, int pipe, int stage, int micro) {
    const PipelineOp op{.kind = kind,
                        .pipe = static_cast<std::uint8_t>(pipe),
                        .stage = static_cast<std::uint16_t>(stage),
                        .micro = static_cast<std::uint16_t>(pipe * each_ + micro)};
    schedule_.ranks[static_cast<std::size_t>(schedule_.holder(op))].push_back(op);
    ++started_;
  }

  PipelineSchedule schedule_;
  int each_;      // micro-batches of a pipe
  int together_;  // forwards in sequence
  std::vector<Place> places_;
  std::int64_t now_ = 0;
  std::int64_t started_ = 0;
};

}  // namespace

PipelineSchedule chimera_schedule(int ranks, int micro_batches) {
  return BothWays(ranks, micro_batches, 1).run();
}

PipelineSchedule doubled_chimera_schedule(int ranks) { return BothWays(ranks, 2 * ranks, 2).run(); }

}  // namespace gradwire
