// A pipeline schedule without a flush as data: ranks begin, repeat a period for as long as training
// goes on, and drain. Micro-batches of a period and of the one before it are under way side by
// side, and so are versions of the weights.
//
// Numbers of micro-batches and versions wrap: number n stands for the only one under way that is n
// modulo the window. The lists of the period have the numbers of its first repetition, those of the
// drain what they are where there was none; each repetition adds what it has begun, modulo the
// window.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "trainer/pipeline/generate.h"
#include "trainer/pipeline/schedule.h"

namespace gradwire {

struct PipelineStream {
  using Lists = std::vector<std::vector<PipelineOp>>;  // by rank, in the order of execution

  int micro_batches = 0;          // of a period
  int window = 0;                 // of micro-batches' numbers
  int versions = 0;               // of versions' numbers
  std::vector<int> rank_of = {};  // by stage
  std::vector<int> layers = {};   // as PipelineSchedule::layers
  Lists start = {};
  Lists period = {};
  Lists drain = {};  // behind so many repetitions of the period, none among them

  int stages() const { return static_cast<int>(rank_of.size()); }
  int size() const { return static_cast<int>(period.size()); }  // ranks
  friend bool operator==(const PipelineStream&, const PipelineStream&) = default;
};

// Of a kind that is asynchronous (is_asynchronous()), with so many micro-batches a step.
// kInvalidArgument as generate_pipeline().
Result<PipelineStream> generate_stream(const PipelineSpec& spec, int ranks, int micro_batches);

// The lists one behind the other, with numbers that do not wrap. kInvalidArgument names the first
// operation, with its rank and place, whose number is not that of the next micro-batch of its
// stage, or a version that is not within the window; more micro-batches than a schedule can have.
Result<PipelineSchedule> unroll_stream(const PipelineStream& stream, int periods);

// kInvalidArgument names the operation, its rank and its place unless the stream trains however
// often the period is repeated: behind it each stage has as many micro-batches under way and the
// same versions as before, counted from the newest ones, so that what is true of the first
// repetitions, each of which is checked with the drain behind it, is true of all.
Status check_stream(const PipelineStream& stream);

//   stream ranks=2 stages=2 micro-batches=1 window=2 versions=2
//   place 0 1
//   layers 3 4                        may be left out
//   start
//   rank 0: 0F0 0F1 ...               as pipeline_text() has them
//   rank 1: ...
//   period
//   ...
//   drain
//   ...
// In CSV blanks are commas, and a rank's line begins with its first operation.
std::string stream_text(const PipelineStream& stream);
std::string stream_csv(const PipelineStream& stream);
// Reads both. kInvalidArgument names line, column, what stands there and what was expected.
Result<PipelineStream> parse_stream(std::string_view text);
// Whether the first line that says something begins such a text.
bool is_stream(std::string_view text);

}  // namespace gradwire
