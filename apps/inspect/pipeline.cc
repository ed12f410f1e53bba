// `gradwire inspect schedule pipeline SCHEDULE RANKS MICRO-BATCHES`: every rank's operations, and
// what the checker says.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/flags.h"
#include "apps/inspect/inspect.h"
#include "apps/sim/pipeline_choice.h"
#include "apps/whole_file.h"
#include "base/text.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/generate.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/stream.h"
#include "trainer/pipeline/text.h"

namespace gradwire {
namespace {

Result<int> pipeline_count(const char* name, const std::string& text, int most) {
  const auto value = to_int(text);
  if (value && *value >= 1 && *value <= most) return static_cast<int>(*value);
  return Status(Code::kInvalidArgument,
                format("inspect schedule pipeline: %s must be a whole number from 1 to %d (got "
                       "'%s')",
                       name, most, text.c_str()));
}

// A user's file may have been lowered; its form says so, not whether it was for tagged or ordered
// links.
PipelineLinks found_links(const PipelineSchedule& schedule, const std::string& asked) {
  if (asked == to_string(PipelineLinks::kOrdered)) return PipelineLinks::kOrdered;
  if (asked == to_string(PipelineLinks::kTagged)) return PipelineLinks::kTagged;
  return has_transfers(schedule) ? PipelineLinks::kTagged : PipelineLinks::kDirect;
}

std::string operations_text(const std::vector<PipelineOp>& ops) {
  std::string text;
  for (const PipelineOp& op : ops) text += (text.empty() ? "" : " ") + to_string(op);
  return text;
}

// What a rank's line says of a schedule and of a stream alike.
template <typename Schedule>
nlohmann::ordered_json row_of(const Schedule& schedule, const PipelineCheck& check,
                              const std::string& name, std::size_t rank) {
  return {{"schedule", name},
          {"ranks", schedule.size()},
          {"stages", schedule.stages()},
          {"micro_batches", schedule.micro_batches},
          {"rank", rank},
          {"contexts", check.contexts[rank]}};
}

void print_pipeline_json(const PipelineSchedule& schedule, const PipelineCheck& check,
                         const std::string& name) {
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    nlohmann::ordered_json row = row_of(schedule, check, name, rank);
    row["operations"] = operations_text(schedule.ranks[rank]);
    std::printf("%s\n", row.dump().c_str());
  }
}

// A schedule without a flush, by its name or in a file; nullopt: it is another.
Result<std::optional<PipelineStream>> chosen_stream(const std::string& name, int ranks,
                                                    int micro_batches) {
  GW_ASSIGN(const PipelineSpec spec, PipelineSpec::parse(name));
  if (is_asynchronous(spec.kind)) {
    GW_ASSIGN(PipelineStream made, generate_stream(spec, ranks, micro_batches));
    return std::optional<PipelineStream>(std::move(made));
  }
  if (spec.kind != PipelineKind::kFile) return std::optional<PipelineStream>();
  GW_ASSIGN(const std::string contents, read_whole_file(spec.path));
  if (!is_stream(contents)) return std::optional<PipelineStream>();
  auto read = parse_stream(contents);
  if (!read.has_value()) return read.error().with_context(spec.path);
  return std::optional<PipelineStream>(std::move(read).value());
}

// Of each rank: the most contexts and versions that it ever has.
Result<PipelineCheck> checked_stream(const PipelineStream& stream) {
  GW_TRY(check_stream(stream));
  GW_ASSIGN(const PipelineSchedule schedule, unroll_stream(stream, stream.size()));
  const PipelineCheck check = check_pipeline(schedule);
  GW_TRY(check.status());
  return check;
}

Result<int> inspect_stream(const PipelineStream& stream, const std::string& name, bool csv,
                           bool json) {
  if (!json && !csv) std::printf("%s\n", stream_text(stream).c_str());
  GW_ASSIGN(const PipelineCheck check, checked_stream(stream));
  if (csv) std::printf("%s", stream_csv(stream).c_str());
  for (std::size_t rank = 0; json && rank < stream.period.size(); ++rank) {
    nlohmann::ordered_json row = row_of(stream, check, name, rank);
    row["versions"] = check.versions[rank];
    row["start"] = operations_text(stream.start[rank]);
    row["period"] = operations_text(stream.period[rank]);
    row["drain"] = operations_text(stream.drain[rank]);
    std::printf("%s\n", row.dump().c_str());
  }
  if (json || csv) return 0;
  std::printf("checked: the period leaves behind what it found, and all ranks finish\n");
  std::printf("%6s %9s %9s\n", "rank", "contexts", "versions");
  for (std::size_t rank = 0; rank < check.contexts.size(); ++rank) {
    std::printf("%6zu %9d %9d\n", rank, check.contexts[rank], check.versions[rank]);
  }
  return 0;
}

}  // namespace

Result<int> inspect_pipeline(const std::vector<std::string>& args) {
  std::string name;
  std::string ranks_text;
  std::string micro_text;
  std::string links_text = "direct";
  bool csv = false;
  bool json = false;
  Flags flags("inspect schedule pipeline",
              "Prints every rank's operations of a pipeline schedule and checks, without a model, "
              "that each is done once and in order, that transfers meet and no ranks wait for one "
              "another.");
  flags.positional("SCHEDULE", name,
                   "gpipe, 1f1b[stages=N+N], interleaved[chunks=V], ..., or file[PATH]", false,
                   pipeline_names());
  flags.positional("RANKS", ranks_text, "number of ranks, 1 to 1024; of file[PATH]: its own", true);
  flags.positional("MICRO-BATCHES", micro_text, "micro-batches of a step; of file[PATH]: its own",
                   true);
  flags.choice("links", links_text, {"direct", "tagged", "ordered"},
               "with transfers for tagged messages or in one order for all");
  flags.toggle("csv", csv, "CSV that PyTorch's pipelining reads, too");
  flags.toggle("json", json, "one JSON line per rank: contexts and operations");
  flags.example("gradwire inspect schedule pipeline 1f1b 4 8");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  const bool own_numbers = name.starts_with("file[") && ranks_text.empty();
  int ranks = 0;
  int micro_batches = 0;
  if (!own_numbers) {
    GW_ASSIGN(ranks, pipeline_count("RANKS", ranks_text, 1024));
    GW_ASSIGN(micro_batches, pipeline_count("MICRO-BATCHES", micro_text, 8192));
  }
  GW_ASSIGN(const std::optional<PipelineStream> stream, chosen_stream(name, ranks, micro_batches));
  if (stream) return inspect_stream(*stream, name, csv, json);
  GW_ASSIGN(PipelineSchedule schedule, choose_pipeline(name, ranks, micro_batches));
  const PipelineLinks links = found_links(schedule, links_text);
  if (!has_transfers(schedule)) {
    GW_ASSIGN(schedule, lower_pipeline(schedule, links));
  }
  const PipelineCheck check = check_pipeline(schedule, {.links = links});
  if (json || csv) {
    GW_TRY(check.status());
    if (json) print_pipeline_json(schedule, check, name);
    if (csv) std::printf("%s", pipeline_csv(schedule).c_str());
    return 0;
  }
  std::printf("%s\n", pipeline_text(schedule).c_str());
  GW_TRY(check.status());
  std::printf("checked: every operation once and in order, all ranks finish (%s links)\n",
              std::string(to_string(links)).c_str());
  std::printf("%6s %10s %9s\n", "rank", "operations", "contexts");
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    std::printf("%6zu %10zu %9d\n", rank, schedule.ranks[rank].size(), check.contexts[rank]);
  }
  return 0;
}

}  // namespace gradwire
