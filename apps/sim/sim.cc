#include "apps/sim/sim.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "apps/bench/row_file.h"
#include "apps/flags.h"
#include "apps/progress.h"
#include "apps/sim/pipeline.h"
#include "apps/sim/sim_page.h"
#include "apps/sim/sim_rows.h"
#include "apps/sim/sim_text.h"
#include "apps/whole_file.h"
#include "base/text.h"
#include "collectives/schedules/selection.h"

namespace gradwire {
namespace {

constexpr std::array kOperations{OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather,
                                 OpKind::kAllToAll,  OpKind::kBroadcast,     OpKind::kReduce,
                                 OpKind::kGather,    OpKind::kScatter,       OpKind::kExclusiveScan,
                                 OpKind::kBarrier,   OpKind::kSend};

struct SimFlags {
  CostQuestion question;
  std::int64_t ranks = 64;
  std::int64_t nodes = 0;  // as many as ranks
  std::string compressor;
  double codec = 1 / 35e9;
  std::string json;
  std::string html;
  bool quiet = false;
};

void add_flags(Flags& flags, SimFlags& f) {
  LinkModel& links = f.question.links;
  flags.group("Problem");
  flags.integer("ranks", f.ranks, {1, 65536}, "number of ranks");
  flags.integer("nodes", f.nodes, {1, 65536},
                "number of nodes, over which consecutive ranks are spread evenly",
                "one for every rank");
  flags.bytes("bytes", f.question.bytes, {0, 1e13},
              "size of the tensor, in bytes, or of all ranks' blocks (K, M, G: powers of 1024)");
  flags.group("Link parameters");
  flags.number("alpha", links.alpha, {0, 1e4}, "latency of a message, in seconds");
  flags.number("beta", links.beta, {0, 1}, "transfer time per byte, in seconds");
  flags.number("gamma", links.gamma, {0, 1}, "reduction time per byte, in seconds");
  flags.number("alpha-intra", links.alpha_intra, {0, 1e4},
               "latency of a message inside a node, in seconds", "as --alpha");
  flags.number("beta-intra", links.beta_intra, {0, 1},
               "transfer time per byte inside a node, in seconds", "as --beta");
  flags.number("gap", links.gap, {0, 1},
               "fraction of alpha for which a message occupies its ports: 0, messages started "
               "together share one alpha; 1, each has its own");
  flags.group("Compression");
  flags.text("compressor", f.compressor,
             "compressor whose exchange is added to the table (all_reduce only)", "none", "SPEC");
  flags.number("codec", f.codec, {0, 1},
               "time of one encoding or decoding pass per raw byte, in seconds");
  flags.group("Output");
  flags.json_output(f.json);
  flags.file("html", f.html, "HTML page with the table and a chart, in FILE");
  flags.toggle("quiet", f.quiet, "no progress");
}

OpKind operation_of(const std::string& name) {
  return *std::ranges::find_if(kOperations, [&](OpKind one) { return schedule_name(one) == name; });
}

Result<Flags::Outcome> read_flags(const std::vector<std::string>& args, SimFlags& f) {
  Flags flags(
      "sim " + args[0],
      "Simulates every algorithm of a collective operation, chunk by chunk, in exact virtual "
      "time, on modelled ranks and links.");
  f.question.links.gap = 0;
  f.question.bytes = 1 << 20;
  add_flags(flags, f);
  flags.example("gradwire sim " + args[0] + " --ranks 16 --bytes 1M");
  GW_ASSIGN(const auto outcome, flags.parse({args.begin() + 1, args.end()}));
  if (!flags.given("alpha-intra")) f.question.links.alpha_intra = f.question.links.alpha;
  if (!flags.given("beta-intra")) f.question.links.beta_intra = f.question.links.beta;
  if (!flags.given("nodes")) f.nodes = f.ranks;
  if (f.nodes > f.ranks) {
    return Status(Code::kInvalidArgument,
                  format("sim: --nodes must be at most --ranks, %lld (got %lld)",
                         static_cast<long long>(f.ranks), static_cast<long long>(f.nodes)));
  }
  if (!f.compressor.empty() && f.question.collective != OpKind::kAllReduce) {
    return Status(Code::kInvalidArgument,
                  "sim: --compressor requires all_reduce (got " + args[0] + ")");
  }
  f.question.ranks = static_cast<int>(f.ranks);
  f.question.nodes = static_cast<int>(f.nodes);
  return outcome;
}

Result<std::vector<SimRow>> rows_of(const SimFlags& f) {
  std::vector<SimRow> compressed;  // first: they take no time and find a bad spec
  if (!f.compressor.empty()) {
    GW_ASSIGN(compressed, compressed_rows(f.question, f.compressor, f.codec));
  }
  const auto style = f.quiet ? Progress::Style::kSilent : Progress::style_for(stderr);
  Progress progress(stderr, style, "sim",
                    static_cast<std::int64_t>(algorithms_of(f.question.collective).size()));
  GW_ASSIGN(std::vector<SimRow> found,
            simulate_rows(f.question, [&](int done, int, std::string_view algorithm) {
              progress.update(done, std::string(algorithm));
            }));
  progress.update(static_cast<std::int64_t>(found.size()), "done");
  found.insert(found.end(), compressed.begin(), compressed.end());
  return found;
}

void print_crossovers(const CostQuestion& question) {
  CostQuestion overlapping = question;
  overlapping.links.gap = 0;
  CostQuestion one_ported = question;
  one_ported.links.gap = 1;
  std::printf("\nChoice of auto, by size:\n");
  std::printf("  gap 0, latencies overlap:    %s\n", crossover_text(overlapping).c_str());
  std::printf("  gap 1, latencies add up:     %s\n", crossover_text(one_ported).c_str());
}

Result<int> simulate(const std::vector<std::string>& args) {
  SimFlags f;
  f.question.collective = operation_of(args[0]);
  GW_ASSIGN(const auto outcome, read_flags(args, f));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_ASSIGN(const std::vector<SimRow> rows, rows_of(f));
  if (f.json == kStandardOutput) {
    std::printf("%s", json_lines(f.question, rows).c_str());
  } else {
    std::printf("%s\n%s", heading_text(f.question).c_str(), table_text(f.question, rows).c_str());
    print_crossovers(f.question);
    if (!f.json.empty()) GW_TRY(write_whole_file(f.json, json_lines(f.question, rows)));
  }
  if (f.html.empty()) return 0;
  std::string command = "gradwire sim";
  for (const std::string& word : args) command += " " + word;
  GW_TRY(write_whole_file(f.html, sim_page(f.question, rows, command)));
  return 0;
}

std::vector<Command> operations() {
  std::vector<Command> all;
  for (const OpKind one : kOperations) {
    all.push_back({.name = schedule_name(one),
                   .help = "algorithms of this operation",
                   .run = simulate,
                   .takes_name = true});
  }
  all.push_back(
      {.name = "pipeline", .help = "schedules of a pipeline, side by side", .run = sim_pipeline});
  return all;
}

}  // namespace

const CommandGroup& sim_group() {
  static const std::vector<Command> all = operations();
  static const CommandGroup group{
      .name = "sim",
      .word = "OPERATION",
      .purpose =
          "Simulates every algorithm of a collective operation on a modelled network, or "
          "schedules of a pipeline.",
      .commands = all,
      .example = "gradwire sim all_reduce --ranks 16 --bytes 1M"};
  return group;
}

Result<int> sim_command(const std::vector<std::string>& args) {
  return run_group(sim_group(), args);
}

}  // namespace gradwire
