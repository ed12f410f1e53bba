#include "apps/sim/sim.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "apps/flags.h"
#include "apps/progress.h"
#include "apps/sim/sim_page.h"
#include "apps/sim/sim_rows.h"
#include "apps/sim/sim_text.h"
#include "apps/whole_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::array kOperations{
    Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
    Collective::kAllToAll,  Collective::kBroadcast,     Collective::kReduce,
    Collective::kGather,    Collective::kScatter,       Collective::kExclusiveScan,
    Collective::kBarrier,   Collective::kSendRecv};

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
  flags.integer("ranks", f.ranks, {1, 65536}, "how many");
  flags.integer("nodes", f.nodes, {1, 65536}, "that consecutive ranks share, almost equally",
                "one for every rank");
  flags.bytes("bytes", f.question.bytes, {0, 1e13},
              "of the tensor; where ranks have rows, of all of them (K, M, G: powers of 1024)");
  flags.group("Links");
  flags.number("alpha", links.alpha, {0, 1e4}, "seconds that a message takes to start");
  flags.number("beta", links.beta, {0, 1}, "seconds for each byte of a message");
  flags.number("gamma", links.gamma, {0, 1}, "seconds for each byte that is reduced");
  flags.number("alpha-intra", links.alpha_intra, {0, 1e4}, "the same inside a node", "as --alpha");
  flags.number("beta-intra", links.beta_intra, {0, 1}, "the same inside a node", "as --beta");
  flags.number("gap", links.gap, {0, 1},
               "share of alpha for which a message keeps its ports busy: 0, messages that start "
               "together share one alpha; 1, every one costs its own");
  flags.group("Compression");
  flags.text("compressor", f.compressor,
             "a spec: adds what exchanging its payloads takes (all_reduce only)");
  flags.number("codec", f.codec, {0, 1}, "seconds for each raw byte of one pass of the codec");
  flags.group("Output");
  flags.text("json", f.json, "file for the rows, one JSON line each");
  flags.text("html", f.html, "file for a page with the table and a chart");
  flags.toggle("quiet", f.quiet, "no progress");
}

std::string names() {
  std::string text;
  for (const Collective operation : kOperations) {
    text += (text.empty() ? "" : ", ") + std::string(to_string(operation));
  }
  return text;
}

Result<Collective> operation_of(const std::string& name) {
  for (const Collective operation : kOperations) {
    if (to_string(operation) == name) return operation;
  }
  return Status(Code::kInvalidArgument,
                "sim: unknown operation ('" + name + "' seen; one of " + names() + " wanted)");
}

Result<Flags::Outcome> read_flags(const std::vector<std::string>& args, SimFlags& f) {
  Flags flags("sim " + args[0],
              "Simulates every algorithm of an operation, chunk by chunk, on ranks and links that "
              "are not there, in exact virtual time.");
  f.question.links.gap = 0;
  f.question.bytes = 1 << 20;
  add_flags(flags, f);
  GW_ASSIGN(const auto outcome, flags.parse({args.begin() + 1, args.end()}));
  if (!flags.given("alpha-intra")) f.question.links.alpha_intra = f.question.links.alpha;
  if (!flags.given("beta-intra")) f.question.links.beta_intra = f.question.links.beta;
  if (!flags.given("nodes")) f.nodes = f.ranks;
  if (f.nodes > f.ranks) {
    return Status(Code::kInvalidArgument,
                  format("sim: more nodes than ranks (%lld seen; at most "
                         "%lld wanted)",
                         static_cast<long long>(f.nodes), static_cast<long long>(f.ranks)));
  }
  if (!f.compressor.empty() && f.question.collective != Collective::kAllReduce) {
    return Status(Code::kInvalidArgument, "sim: --compressor with " + args[0] +
                                              " (all_reduce wanted: gradients are averaged)");
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
  std::printf("\nWhat auto takes, by size:\n");
  std::printf("  gap 0, start-ups overlap:   %s\n", crossover_text(overlapping).c_str());
  std::printf("  gap 1, one after another:   %s\n", crossover_text(one_ported).c_str());
}

}  // namespace

Result<int> sim_command(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    std::printf("usage: gradwire sim OPERATION ...; gradwire sim OPERATION --help tells more\n\n");
    std::printf("operations: %s\n", names().c_str());
    return args.empty() ? 1 : 0;
  }
  SimFlags f;
  GW_ASSIGN(f.question.collective, operation_of(args[0]));
  GW_ASSIGN(const auto outcome, read_flags(args, f));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_ASSIGN(const std::vector<SimRow> rows, rows_of(f));
  std::printf("%s\n%s", heading_text(f.question).c_str(), table_text(f.question, rows).c_str());
  print_crossovers(f.question);
  if (!f.json.empty()) GW_TRY(write_whole_file(f.json, json_lines(f.question, rows)));
  if (f.html.empty()) return 0;
  std::string command = "gradwire sim";
  for (const std::string& word : args) command += " " + word;
  GW_TRY(write_whole_file(f.html, sim_page(f.question, rows, command)));
  return 0;
}

}  // namespace gradwire
