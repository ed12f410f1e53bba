// Schedules by name, as `--parallel pp=N/SCHEDULE` has them.
#pragma once

#include <string>
#include <string_view>

#include "gradwire/status.h"
#include "trainer/pipeline/schedule.h"

namespace gradwire {

enum class PipelineKind : std::uint8_t {
  kGpipe,
  kOneFOneB,
  kInterleaved,
  kZeroBubbleH1,
  kZeroBubbleV,
  kZeroBubbleVHalf,
  kZeroBubbleVMin,
  kBreadthFirst,
  kChimera,
  kPipeDream,
  kPipeDream2BW,
  kFile,  // a text or CSV of the user's (text.h)
};

inline constexpr std::array kGeneratedPipelines{
    PipelineKind::kGpipe,          PipelineKind::kOneFOneB,     PipelineKind::kInterleaved,
    PipelineKind::kZeroBubbleH1,   PipelineKind::kZeroBubbleV,  PipelineKind::kZeroBubbleVHalf,
    PipelineKind::kZeroBubbleVMin, PipelineKind::kBreadthFirst, PipelineKind::kChimera,
    PipelineKind::kPipeDream,      PipelineKind::kPipeDream2BW};

// "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "zb-v-half", "zb-v-min", "breadth-first",
// "chimera", "pipedream", "2bw", "file".
std::string_view to_string(PipelineKind kind);
// Whether a spec says how many stages each rank has.
constexpr bool has_chunks(PipelineKind kind) {
  return kind == PipelineKind::kInterleaved || kind == PipelineKind::kBreadthFirst;
}
// Whether ranks have two stages each, on the way there and back.
constexpr bool is_v(PipelineKind kind) {
  return kind == PipelineKind::kZeroBubbleV || kind == PipelineKind::kZeroBubbleVHalf ||
         kind == PipelineKind::kZeroBubbleVMin;
}
// Whether ranks go on with the next step before one has ended: the weights have versions.
constexpr bool is_asynchronous(PipelineKind kind) {
  return kind == PipelineKind::kPipeDream || kind == PipelineKind::kPipeDream2BW;
}
// Whether the backward is I and W.
constexpr bool splits_backward(PipelineKind kind) {
  return kind == PipelineKind::kZeroBubbleH1 || is_v(kind);
}

//   gpipe | 1f1b | interleaved[chunks=V] | zb-h1 | zb-v | zb-v-half | zb-v-min |
//   breadth-first[chunks=V] | chimera[doubling=on|off] | pipedream[vertical_sync=on|off] | 2bw |
//   file[PATH]
//
// What is in brackets may be left out, but for a path: V is 2 then, all else off. All but file take
// stages=N+N+... there, too, behind a comma where another key stands before it: the layers of each
// stage.
struct PipelineSpec {
  PipelineKind kind = PipelineKind::kOneFOneB;
  int chunks = 2;                // where has_chunks(kind), 1 to 1,024
  bool doubling = false;         // of kChimera
  bool vertical_sync = false;    // of kPipeDream: one version for a micro-batch on all stages
  std::string path = {};         // of kFile
  std::vector<int> layers = {};  // but of kFile: as PipelineSchedule::layers

  // kInvalidArgument shows the text, and what was expected.
  static Result<PipelineSpec> parse(std::string_view text);
  // A text that parses to the same.
  std::string text() const;
  // Of a pipe and a rank, where the schedule is generated.
  int stages_a_rank() const { return has_chunks(kind) ? chunks : is_v(kind) ? 2 : 1; }

  friend bool operator==(const PipelineSpec&, const PipelineSpec&) = default;
};

// The schedule for so many ranks and micro-batches of a step, without transfers and operations of
// the step's end. kInvalidArgument: a number that is not from 1 to 65,535, more than 65,536 stages
// or 2^27 operations, spec.layers that are not one for each stage, for kChimera an odd number, or
// with doubling other micro-batches than twice the ranks, for kPipeDream2BW fewer micro-batches
// than ranks. kUnsupported for kFile: a caller reads files, and parses them (parse_pipeline()).
// `steps`: of an asynchronous kind, from the first forward until all is done, with STASH, DROP and
// OPT; kPipeDream makes a step of each micro-batch of all of them. Others have one.
Result<PipelineSchedule> generate_pipeline(const PipelineSpec& spec, int ranks, int micro_batches,
                                           int steps = 1);

}  // namespace gradwire
