// Pipeline schedules as `file[PATH]` brings them: texts and CSV that anybody may have written. What
// is read is checked; what is valid is lowered, checked again and simulated.
#include <string_view>

#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/generators/generators.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/simulate.h"
#include "trainer/pipeline/text.h"

namespace gradwire::fuzz {
namespace {

void run_valid(const PipelineSchedule& schedule, PipelineLinks links) {
  PipelineCosts costs = even_costs(schedule.stages(), 3, 2, 1);
  costs.link.alpha = 1;
  costs.links = links;
  for (const bool overlap : {true, false}) {
    costs.overlap = overlap;
    const auto run = simulate_pipeline(schedule, costs);
    GW_CHECK(run.has_value());
    GW_CHECK(run.value().idle_total() >= 0);
  }
}

void read_schedule(std::string_view text) {
  const auto read = parse_pipeline(text);
  if (!read.has_value()) {
    GW_CHECK(read.error().message().starts_with("line "));
    return;
  }
  const PipelineSchedule& schedule = read.value();
  GW_CHECK(parse_pipeline_text(pipeline_text(schedule)).value() == schedule);
  for (const PipelineLinks links :
       {PipelineLinks::kDirect, PipelineLinks::kTagged, PipelineLinks::kOrdered}) {
    if (check_pipeline(schedule, {.links = links}).ok()) run_valid(schedule, links);
    const auto lowered = lower_pipeline(schedule, links);
    if (!lowered.has_value()) continue;
    GW_CHECK(check_pipeline(lowered.value(), {.links = links}).ok());
    run_valid(lowered.value(), links);
  }
}

Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

}  // namespace

std::vector<Bytes> seeds() {
  const PipelineStepOps step{.reduce = true, .tied = true, .sharded = true};
  const PipelineSchedule split = with_step_ops(zero_bubble_h1_schedule(2, 2), step);
  return {
      bytes_of(pipeline_text(one_f_one_b_schedule(2, 2))),
      bytes_of(pipeline_csv(split)),
      bytes_of(pipeline_csv(interleaved_schedule(2, 2, 2))),
      bytes_of(
          pipeline_text(lower_pipeline(gpipe_schedule(2, 2), PipelineLinks::kOrdered).value())),
      // Two pipes, and weights in several versions.
      bytes_of("0F0,1F1@1,1B1@1,0B0,0RR,1RR@1\n0F1@1,1F0,1B0,0B1@1,0RR@1,1RR\n"),
      bytes_of("0F0,0F1,0STASH,0B0,0OPT,0B1,0OPT#1,0DROP\n"),
  };
}

}  // namespace gradwire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gradwire::fuzz::read_schedule({reinterpret_cast<const char*>(data), size});
  return 0;
}
