#include "apps/sim/pipeline.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/bench/row_file.h"
#include "apps/flags.h"
#include "apps/sim/pipeline_choice.h"
#include "apps/whole_file.h"
#include "base/text.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/draw.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/simulate.h"

namespace gradwire {
namespace {

struct PipelineSimFlags {
  std::string schedules = "gpipe;1f1b;interleaved;zb-h1;zb-v;zb-v-half;zb-v-min;breadth-first";
  std::int64_t ranks = 4;
  std::int64_t micro_batches = 8;
  std::int64_t steps = 1;
  PipelineStageCost stage = {};  // of a rank with one stage
  PipelineLink link = {};
  std::string links = "direct";
  bool no_overlap = false;
  bool picture = false;
  std::string svg;
  std::string trace;
  std::string json;
};

// One schedule and what came of it.
struct PipelineRow {
  std::string name;
  PipelineSchedule schedule;
  PipelineSimulation run;
  int contexts = 0;  // of the rank that has most, in stages of that schedule
  int versions = 0;  // of the weights, likewise
  std::int64_t message_bytes = 0;
  std::int64_t memory = 0;  // bytes of the rank that needs most: contexts and messages
};

void declare_flags(Flags& flags, PipelineSimFlags& f) {
  constexpr double kMost = 1e12;
  flags.group("Problem");
  flags.text("schedules", f.schedules,
             "schedules, with ';' between them: gpipe, 1f1b, interleaved[chunks=V], zb-h1, "
             "zb-v, zb-v-half, zb-v-min, breadth-first[chunks=V], chimera[doubling=on|off], "
             "pipedream[vertical_sync=on|off], 2bw, file[PATH]; [stages=N+N+...]: layers of each "
             "stage, all alike",
             "none", "LIST");
  flags.integer("ranks", f.ranks, {1, 1024}, "number of ranks, or pipeline stages of 1f1b");
  flags.integer("micro-batches", f.micro_batches, {1, 8192}, "micro-batches of a step");
  flags.integer("steps", f.steps, {1, 8192},
                "steps of schedules without a flush (pipedream, 2bw), from start to drain");
  flags.group("Costs");
  flags.integer("forward", f.stage.forward, {0, kMost},
                "forward of a rank's layers and a micro-batch, in ticks");
  flags.integer("backward-input", f.stage.backward_input, {0, kMost},
                "backward for the inputs' gradient, in ticks");
  flags.integer("backward-weight", f.stage.backward_weight, {0, kMost},
                "backward for the weights' gradient, in ticks");
  flags.integer("message-bytes", f.stage.output_bytes, {0, kMost},
                "activations that go from stage to stage, and their gradients, in bytes");
  flags.integer("context-bytes", f.stage.context_bytes, {0, kMost},
                "activations that a rank's layers keep for a micro-batch's backward, in bytes");
  flags.group("Link parameters");
  flags.integer("alpha", f.link.alpha, {0, kMost}, "latency of a message, in ticks");
  flags.integer("beta", f.link.beta, {0, kMost}, "transfer time per byte, in ticks");
  flags.choice("links", f.links, {"direct", "tagged", "ordered"},
               "transfers: none in the list, tagged messages, or one order for all");
  flags.toggle("no-overlap", f.no_overlap, "ranks wait for their transfers");
  flags.group("Output");
  flags.toggle("picture", f.picture, "each schedule as a line for each rank");
  flags.file("svg", f.svg, "picture of the only schedule as SVG, in FILE");
  flags.file("trace", f.trace, "the only schedule as a Chrome trace, in FILE");
  flags.json_output(f.json);
}

PipelineLinks links_named(const std::string& name) {
  for (const PipelineLinks links : {PipelineLinks::kTagged, PipelineLinks::kOrdered}) {
    if (name == to_string(links)) return links;
  }
  return PipelineLinks::kDirect;
}

std::vector<std::string> split_names(const std::string& list) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(';', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

// Into how many shares all layers of all ranks are cut, and how many of them a stage has: the
// layers that a schedule says, or one for each stage.
std::int64_t all_shares(const PipelineSchedule& schedule) {
  const std::vector<int>& layers = schedule.layers;
  return layers.empty() ? schedule.stages()
                        : std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
}
std::int64_t shares_of(const PipelineSchedule& schedule, int stage) {
  return schedule.layers.empty() ? 1 : schedule.layers[static_cast<std::size_t>(stage)];
}

// All layers together cost the same under every schedule: a stage has its share of them, in ticks
// that are so much finer.
std::vector<PipelineStageCost> stage_costs_of(const PipelineSimFlags& f,
                                              const PipelineSchedule& schedule, int parts) {
  std::vector<PipelineStageCost> costs;
  for (int number = 0; number < schedule.stages(); ++number) {
    const std::int64_t here = shares_of(schedule, number) * schedule.size();
    const std::int64_t all = all_shares(schedule);
    PipelineStageCost stage = f.stage;
    for (std::int64_t* ticks : {&stage.forward, &stage.backward_input, &stage.backward_weight}) {
      *ticks *= parts * here / all;
    }
    stage.input_bytes = stage.output_bytes;
    const std::int64_t context = f.stage.context_bytes;  // its product may not fit
    stage.context_bytes = context / all * here + context % all * here / all;
    stage.weight_bytes =
        stage.context_bytes;  // all of it until W: what I could free is the layers'
    costs.push_back(stage);
  }
  return costs;
}

Result<PipelineRow> simulated(const PipelineSimFlags& f, const std::string& name, int parts) {
  GW_ASSIGN(PipelineSchedule made,
            choose_pipeline(name, static_cast<int>(f.ranks), static_cast<int>(f.micro_batches),
                            static_cast<int>(f.steps)));
  PipelineCosts costs{.links = links_named(f.links), .overlap = !f.no_overlap};
  costs.stages = stage_costs_of(f, made, parts);
  costs.link = {.alpha = f.link.alpha * parts, .beta = f.link.beta * parts};
  PipelineRow row{.name = name, .schedule = {}, .run = {}};
  const PipelineCheck check = check_pipeline(made);
  GW_TRY(check.status().with_context(name));
  row.contexts = *std::ranges::max_element(check.contexts);
  row.versions = *std::ranges::max_element(check.versions);
  GW_ASSIGN(row.schedule, lower_pipeline(made, costs.links));
  GW_ASSIGN(row.run, simulate_pipeline(row.schedule, costs));
  for (const PipelineMessage& message : row.run.messages) row.message_bytes += message.bytes;
  for (const PipelineMemory& rank : row.run.memory) row.memory = std::max(row.memory, rank.total);
  return row;
}

// A number of parts into which every schedule's stages cut a rank's layers evenly.
Result<int> common_parts(const PipelineSimFlags& f, const std::vector<std::string>& names) {
  constexpr std::int64_t kMostParts = 1 << 20;
  std::int64_t parts = 1;
  for (const std::string& name : names) {
    GW_ASSIGN(const PipelineSchedule made,
              choose_pipeline(name, static_cast<int>(f.ranks), static_cast<int>(f.micro_batches),
                              static_cast<int>(f.steps)));
    const std::int64_t whole = std::lcm(all_shares(made), std::int64_t{made.size()});
    parts = std::lcm(parts, whole / made.size());
    if (parts > kMostParts) {
      return Status(Code::kInvalidArgument,
                    format("sim pipeline: %s: stages that share no tick with the others (expected "
                           "at most %lld parts of a rank's layers)",
                           name.c_str(), static_cast<long long>(kMostParts)));
    }
  }
  return static_cast<int>(parts);
}

// Micro-batches are those of all steps, so that a row of one step differs from a row of many.
std::string rows_text(const std::vector<PipelineRow>& rows, int parts) {
  std::size_t width = 8;
  for (const PipelineRow& row : rows) width = std::max(width, row.name.size());
  const int w = static_cast<int>(width) + 2;
  std::string text = format("%-*s %13s %12s %9s %9s %8s %8s %13s %13s\n", w, "schedule",
                            "micro-batches", "makespan", "idle/busy", "idle/all", "contexts",
                            "messages", "message bytes", "memory bytes");
  for (const PipelineRow& row : rows) {
    text += format(
        "%-*s %13d %12s %9.4f %9.4f %8d %8zu %13lld %13lld\n", w, row.name.c_str(),
        row.schedule.micro_batches, shortest(static_cast<double>(row.run.makespan) / parts).c_str(),
        row.run.bubble_of_busy(), row.run.bubble_of_all(), row.contexts, row.run.messages.size(),
        static_cast<long long>(row.message_bytes), static_cast<long long>(row.memory));
  }
  return text;
}

std::string rows_json(const std::vector<PipelineRow>& rows, int parts) {
  std::string lines;
  for (const PipelineRow& row : rows) {
    const nlohmann::ordered_json json{{"schedule", row.name},
                                      {"ranks", row.schedule.size()},
                                      {"stages", row.schedule.stages()},
                                      {"micro_batches", row.schedule.micro_batches},
                                      {"makespan", static_cast<double>(row.run.makespan) / parts},
                                      {"bubble_of_busy", row.run.bubble_of_busy()},
                                      {"bubble_of_all", row.run.bubble_of_all()},
                                      {"contexts_max", row.contexts},
                                      {"versions_max", row.versions},
                                      {"messages", row.run.messages.size()},
                                      {"message_bytes", row.message_bytes},
                                      {"memory_bytes_max", row.memory}};
    lines += json.dump() + "\n";
  }
  return lines;
}

Status write_pictures(const PipelineSimFlags& f, const std::vector<PipelineRow>& rows) {
  if (f.svg.empty() && f.trace.empty()) return {};
  if (rows.size() != 1) {
    return {Code::kInvalidArgument,
            format("sim pipeline: --svg and --trace show one schedule (got %zu in --schedules)",
                   rows.size())};
  }
  const PipelineRow& row = rows.front();
  if (!f.svg.empty()) {
    GW_TRY(write_whole_file(f.svg, pipeline_svg(row.schedule, row.run)));
  }
  if (f.trace.empty()) return {};
  return write_whole_file(f.trace, pipeline_trace(row.schedule, row.run));
}

}  // namespace

Result<int> sim_pipeline(const std::vector<std::string>& args) {
  PipelineSimFlags f;
  Flags flags(
      "sim pipeline",
      "Simulates schedules of a pipeline in exact virtual time: one step, the ranks' layers "
      "alike. A tick is any unit of time.");
  declare_flags(flags, f);
  flags.example("gradwire sim pipeline --ranks 4 --micro-batches 8");
  flags.example("gradwire sim pipeline --schedules '1f1b;zb-h1' --picture");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  const std::vector<std::string> names = split_names(f.schedules);
  GW_ASSIGN(const int parts, common_parts(f, names));
  std::vector<PipelineRow> rows;
  for (const std::string& name : names) {
    GW_ASSIGN(PipelineRow row, simulated(f, name, parts));
    rows.push_back(std::move(row));
  }
  GW_TRY(write_pictures(f, rows));
  if (f.json == kStandardOutput) {
    std::printf("%s", rows_json(rows, parts).c_str());
    return 0;
  }
  std::printf("%lld ranks, %lld micro-batches a step, %s links, times in ticks\n%s",
              static_cast<long long>(f.ranks), static_cast<long long>(f.micro_batches),
              f.links.c_str(), rows_text(rows, parts).c_str());
  for (const PipelineRow& row : rows) {
    if (!f.picture) break;
    std::printf("\n%s\n%s", row.name.c_str(), pipeline_picture(row.schedule, row.run).c_str());
  }
  if (!f.json.empty()) GW_TRY(write_whole_file(f.json, rows_json(rows, parts)));
  return 0;
}

}  // namespace gradwire
