#include "trainer/pipeline/stream.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/generators/generators.h"

namespace gradwire {
namespace {

using Kind = PipelineOpKind;
using Lists = PipelineStream::Lists;

// Behind which repetitions the drain is looked at; operations wait for others of the period before
// theirs at most.
constexpr int kCheckedPeriods = 4;

// What a stage has begun.
struct StageCount {
  std::array<int, kPipelineOpKinds> micros = {};  // by kind of operation: micro-batches so far
  int newest = 0;                                 // version
  std::vector<int> kept = {};                     // versions beside it

  int& of(Kind kind) { return micros[static_cast<std::size_t>(kind)]; }
  int forwards() const { return micros[static_cast<std::size_t>(Kind::kForward)]; }
  std::vector<int> ages() const {
    std::vector<int> all;
    for (const int version : kept) all.push_back(newest - version);
    return all;
  }
};

// Whether a period of so many micro-batches has left behind what it found.
bool closes(const StageCount& before, const StageCount& after, int micro_batches) {
  for (std::size_t kind = 0; kind < after.micros.size(); ++kind) {
    const bool needed = after.micros[kind] > 0 || kind == static_cast<std::size_t>(Kind::kForward);
    if (after.micros[kind] - before.micros[kind] != (needed ? micro_batches : 0)) return false;
  }
  return before.ages() == after.ages();
}

// In the period.
int count_of(const PipelineStream& stream, int stage, Kind kind) {
  const auto& ops =
      stream.period[static_cast<std::size_t>(stream.rank_of[static_cast<std::size_t>(stage)])];
  return static_cast<int>(std::ranges::count_if(
      ops, [stage, kind](const PipelineOp& op) { return op.kind == kind && op.stage == stage; }));
}

// Follows the lists of a stream.
class Unroller {
 public:
  explicit Unroller(const PipelineStream& stream)
      : stream_(stream), counts_(static_cast<std::size_t>(stream.stages())) {
    schedule_.rank_of.push_back(stream.rank_of);
    schedule_.layers = stream.layers;
    schedule_.ranks.resize(stream.period.size());
  }

  // `repetitions` of the period come before the lists.
  Status add(const Lists& lists, const char* part, int repetitions) {
    for (std::size_t rank = 0; rank < lists.size(); ++rank) {
      for (std::size_t i = 0; i < lists[rank].size(); ++i) {
        PipelineOp op = lists[rank][i];
        const std::string why = number(op, repetitions);
        if (!why.empty()) {
          return {Code::kInvalidArgument,
                  format("pipeline stream: %s (rank %zu, operation %zu of the %s) %s",
                         to_string(lists[rank][i]).c_str(), rank, i, part, why.c_str())};
        }
        schedule_.ranks[rank].push_back(op);
      }
    }
    return {};
  }

  const std::vector<StageCount>& counts() const { return counts_; }
  PipelineSchedule schedule() && {
    for (const StageCount& count : counts_) {
      schedule_.micro_batches = std::max(schedule_.micro_batches, count.forwards());
    }
    return std::move(schedule_);
  }

 private:
  static int modulo(int value, int window) { return (value % window + window) % window; }

  // Gives the operation its own numbers; else says what is wrong.
  std::string number(PipelineOp& op, int repetitions) {
    if (op.stage >= stream_.stages() || op.pipe != 0) {
      return format("names a stage of pipe %d (expected 0 to %d of pipe 0)", op.pipe,
                    stream_.stages() - 1);
    }
    StageCount& count = counts_[op.stage];
    if (has_micro_batch(op.kind)) {
      const int next = count.of(op.kind)++;
      const int said = modulo(op.micro + repetitions * stream_.micro_batches, stream_.window);
      if (said != next % stream_.window) {
        return format("is of micro-batch %d in repetition %d (expected %d, the next one)", said,
                      repetitions, next % stream_.window);
      }
      if (next >= kMostMicroBatches) return format("is of more than %d", kMostMicroBatches);
      op.micro = static_cast<std::uint16_t>(next);
    }
    const int behind =
        modulo(count.newest - op.version - repetitions * steps_of(op.stage), stream_.versions);
    const int version = count.newest - behind;
    if (version < 0) return format("is of version %d, before the first one", version);
    op.version = static_cast<std::uint16_t>(version);
    if (op.kind == Kind::kOptimizerStep) ++count.newest;
    if (op.kind == Kind::kStashWeights) count.kept.push_back(version);
    if (op.kind == Kind::kDropWeights && std::erase(count.kept, version) == 0) {
      return format("frees version %d, which is not kept (expected STASH of it before)", version);
    }
    return "";
  }

  int steps_of(int stage) const { return count_of(stream_, stage, Kind::kOptimizerStep); }

  const PipelineStream& stream_;
  std::vector<StageCount> counts_;  // by stage
  PipelineSchedule schedule_;
};

Status check_stream_shape(const PipelineStream& stream) {
  const auto wrong = [](const char* what, std::size_t value, const char* expected) {
    return Status(Code::kInvalidArgument,
                  format("pipeline stream: %zu %s (expected %s)", value, what, expected));
  };
  if (stream.period.empty() || stream.start.size() != stream.period.size() ||
      stream.drain.size() != stream.period.size()) {
    return wrong("ranks in the period", stream.period.size(),
                 "one or more, as many as in start and drain");
  }
  if (stream.rank_of.empty()) return wrong("stages", 0, "one or more");
  for (const int rank : stream.rank_of) {
    if (rank < 0 || rank >= stream.size()) {
      return wrong("is a stage's rank", static_cast<std::size_t>(rank), "one that is there");
    }
  }
  if (!stream.layers.empty() && stream.layers.size() != stream.rank_of.size()) {
    return wrong("stages with layers", stream.layers.size(), "none, or all");
  }
  if (stream.micro_batches < 1 || stream.window < 1 || stream.versions < 1) {
    return wrong("micro-batches, or an empty window",
                 static_cast<std::size_t>(std::max(stream.micro_batches, 0)), "one or more");
  }
  return {};
}

// The lists of finite `whole`, cut behind a number of steps of each rank, from `first` to `end`.
Lists cut_steps(const PipelineSchedule& whole, int first, int end, const PipelineStream& stream) {
  Lists lists;
  for (const auto& ops : whole.ranks) {
    auto& list = lists.emplace_back();
    int step = 0;
    for (PipelineOp op : ops) {
      const bool is_in = step >= first && step < end;
      step += op.kind == Kind::kOptimizerStep ? 1 : 0;
      if (!is_in) continue;
      if (op.micro != PipelineOp::kNoMicro) {
        op.micro = static_cast<std::uint16_t>(op.micro % stream.window);
      }
      op.version = static_cast<std::uint16_t>(op.version % stream.versions);
      list.push_back(op);
    }
  }
  return lists;
}

Status not_closed(const PipelineStream& stream, std::size_t stage) {
  const auto rank = static_cast<std::size_t>(stream.rank_of[stage]);
  const auto& ops = stream.period[rank];
  const auto last = std::find_if(ops.rbegin(), ops.rend(),
                                 [stage](const PipelineOp& op) { return op.stage == stage; });
  const std::string op = last == ops.rend() ? "nothing" : to_string(*last);
  const int kept = count_of(stream, static_cast<int>(stage), Kind::kStashWeights);
  const int freed = count_of(stream, static_cast<int>(stage), Kind::kDropWeights);
  return {Code::kInvalidArgument,
          format("pipeline stream: the period does not close: behind %s, the last operation of "
                 "stage %zu on rank %zu, there are other micro-batches under way or versions kept "
                 "than before the period (expected the same, counted from the newest; the period "
                 "has %d STASH and %d DROP of this stage)",
                 op.c_str(), stage, rank, kept, freed)};
}

// A period has steps of every stage.
Status check_steps(const PipelineStream& stream) {
  for (int stage = 0; stage < stream.stages(); ++stage) {
    if (count_of(stream, stage, Kind::kOptimizerStep) > 0) continue;
    return {Code::kInvalidArgument,
            format("pipeline stream: the period of stage %d on rank %d has no %dOPT (expected "
                   "one behind the backwards whose gradients it applies)",
                   stage, stream.rank_of[static_cast<std::size_t>(stage)], stage)};
  }
  return {};
}

// Start and drain have as many steps for a micro-batch as the period.
Status check_steps_of_ends(const PipelineStream& stream) {
  Unroller ends(stream);
  GW_TRY(ends.add(stream.start, "start", 0));
  GW_TRY(ends.add(stream.drain, "drain", 0));
  for (int stage = 0; stage < stream.stages(); ++stage) {
    const int rank = stream.rank_of[static_cast<std::size_t>(stage)];
    const int steps = count_of(stream, stage, Kind::kOptimizerStep);
    const StageCount& count = ends.counts()[static_cast<std::size_t>(stage)];
    if (count.newest * stream.micro_batches == count.forwards() * steps) continue;
    return {
        Code::kInvalidArgument,
        format("pipeline stream: start and drain of stage %d on rank %d have %d %dOPT for %d "
               "micro-batches (expected %d for every %d, as the period has)",
               stage, rank, count.newest, stage, count.forwards(), steps, stream.micro_batches)};
  }
  return {};
}

}  // namespace

Result<PipelineStream> generate_stream(const PipelineSpec& spec, int ranks, int micro_batches) {
  if (!is_asynchronous(spec.kind)) {
    return Status(Code::kInvalidArgument,
                  format("pipeline schedule %s has a flush (expected pipedream or 2bw)",
                         spec.text().c_str()));
  }
  const bool each = spec.kind == PipelineKind::kPipeDream;  // micro-batch is a step
  // Steps before versions fall behind by as many as ever after, and those in which there is
  // nothing new to begin.
  const int before = each ? ranks - 1 : 1;
  const int behind = each ? ranks - 1 : 1;
  const int steps = before + 1 + behind;
  const int whole_batches = each ? steps : micro_batches;
  GW_ASSIGN(const PipelineSchedule whole,
            generate_pipeline(spec, ranks, whole_batches, each ? 1 : steps));
  PipelineStream stream{.micro_batches = each ? 1 : micro_batches,
                        .window = ranks,
                        .versions = each ? ranks : 2,
                        .rank_of = whole.rank_of.front(),
                        .layers = whole.layers};
  stream.start = cut_steps(whole, 0, before, stream);
  stream.period = cut_steps(whole, before, before + 1, stream);
  stream.drain = cut_steps(whole, before + 1, steps, stream);
  // The drain as it follows no repetition.
  for (auto& ops : stream.drain) {
    for (PipelineOp& op : ops) {
      if (op.micro != PipelineOp::kNoMicro) {
        op.micro = static_cast<std::uint16_t>(
            (op.micro + stream.window - stream.micro_batches % stream.window) % stream.window);
      }
      op.version = static_cast<std::uint16_t>((op.version + stream.versions - 1) % stream.versions);
    }
  }
  return stream;
}

Result<PipelineSchedule> unroll_stream(const PipelineStream& stream, int periods) {
  GW_TRY(check_stream_shape(stream));
  Unroller unroller(stream);
  GW_TRY(unroller.add(stream.start, "start", 0));
  for (int period = 0; period < periods; ++period) {
    GW_TRY(unroller.add(stream.period, "period", period));
  }
  GW_TRY(unroller.add(stream.drain, "drain", periods));
  return std::move(unroller).schedule();
}

Status check_stream(const PipelineStream& stream) {
  GW_TRY(check_stream_shape(stream));
  GW_TRY(check_steps(stream));
  Unroller unroller(stream);
  GW_TRY(unroller.add(stream.start, "start", 0));
  const std::vector<StageCount> before = unroller.counts();
  GW_TRY(unroller.add(stream.period, "period", 0));
  for (std::size_t stage = 0; stage < before.size(); ++stage) {
    if (!closes(before[stage], unroller.counts()[stage], stream.micro_batches)) {
      return not_closed(stream, stage);
    }
  }
  GW_TRY(check_steps_of_ends(stream));
  for (int periods = 0; periods < kCheckedPeriods; ++periods) {
    GW_ASSIGN(const PipelineSchedule schedule, unroll_stream(stream, periods));
    if (schedule.micro_batches == 0) continue;  // on one rank there is no start, and no drain
    GW_TRY(check_pipeline(schedule).status().with_context(
        format("pipeline stream, behind %d repetitions", periods)));
  }
  return {};
}

}  // namespace gradwire
