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
  kBreadthFirst,
  kFile,  // a text or CSV of the user's (text.h)
};

inline constexpr std::array kGeneratedPipelines{
    PipelineKind::kGpipe, PipelineKind::kOneFOneB, PipelineKind::kInterleaved,
    PipelineKind::kZeroBubbleH1, PipelineKind::kBreadthFirst};

// "gpipe", "1f1b", "interleaved", "zb-h1", "breadth-first", "file".
std::string_view to_string(PipelineKind kind);
// Whether ranks have `chunks` stages each, and not one.
constexpr bool has_chunks(PipelineKind kind) {
  return kind == PipelineKind::kInterleaved || kind == PipelineKind::kBreadthFirst;
}

//   gpipe | 1f1b | interleaved[chunks=V] | zb-h1 | breadth-first[chunks=V] | file[PATH]
//
// "[chunks=V]" may be left out: V is 2 then.
struct PipelineSpec {
  PipelineKind kind = PipelineKind::kOneFOneB;
  int chunks = 2;         // where has_chunks(kind): stages of a rank, 1 to 1,024
  std::string path = {};  // of kFile

  // kInvalidArgument shows the text, and what was expected.
  static Result<PipelineSpec> parse(std::string_view text);
  // A text that parses to the same.
  std::string text() const;

  friend bool operator==(const PipelineSpec&, const PipelineSpec&) = default;
};

// The schedule for so many ranks and micro-batches, without transfers and operations of the step's
// end. kInvalidArgument: a number that is not from 1 to 65,535, more than 65,536 stages or 2^27
// operations. kUnsupported for kFile: a caller reads files, and parses them (parse_pipeline()).
Result<PipelineSchedule> generate_pipeline(const PipelineSpec& spec, int ranks, int micro_batches);

}  // namespace gradwire
