#include "apps/sim/pipeline_choice.h"

#include "apps/whole_file.h"
#include "base/text.h"
#include "trainer/pipeline/generate.h"
#include "trainer/pipeline/stream.h"
#include "trainer/pipeline/text.h"

namespace gradwire {
namespace {

Status check_number(const PipelineSpec& spec, const char* what, int there, int wanted) {
  if (wanted <= 0 || there == wanted) return {};
  return {Code::kInvalidArgument, format("pipeline schedule %s has %d %s (expected %d)",
                                         spec.text().c_str(), there, what, wanted)};
}

}  // namespace

std::vector<std::string> pipeline_names() {
  std::vector<std::string> names;
  for (const PipelineKind kind : kGeneratedPipelines) names.emplace_back(to_string(kind));
  return names;
}

Result<PipelineSchedule> choose_pipeline(const std::string& text, int ranks, int micro_batches,
                                         int steps) {
  GW_ASSIGN(const PipelineSpec spec, PipelineSpec::parse(text));
  if (spec.kind != PipelineKind::kFile) {
    return generate_pipeline(spec, ranks, micro_batches, is_asynchronous(spec.kind) ? steps : 1);
  }
  GW_ASSIGN(const std::string contents, read_whole_file(spec.path));
  if (is_stream(contents)) {
    return Status(
        Code::kUnsupported,
        format("pipeline schedule %s: a stream without an end (expected a schedule of one "
               "step; pipedream and 2bw have streams by their names, and gradwire inspect "
               "schedule pipeline reads files of them)",
               spec.text().c_str()));
  }
  auto read = parse_pipeline(contents);
  if (!read.has_value()) return read.error().with_context(spec.path);
  GW_TRY(check_number(spec, "ranks", read.value().size(), ranks));
  GW_TRY(check_number(spec, "micro-batches", read.value().micro_batches, micro_batches));
  return read;
}

}  // namespace gradwire
