#include "apps/sim/sim_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "collectives/cost/choice.h"

namespace gradwire {
namespace {

constexpr std::int64_t kSmallestCrossover = 64;  // bytes that crossovers are looked for in
constexpr std::int64_t kLargest = std::int64_t{4} << 30;

std::string links_text(const LinkModel& links) {
  return format("alpha %s, beta %.4g ns/B, gamma %.4g ns/B", time_text(links.alpha).c_str(),
                links.beta * 1e9, links.gamma * 1e9) +
         format("; inside a node alpha %s, beta %.4g ns/B; gap %.3g",
                time_text(links.alpha_intra).c_str(), links.beta_intra * 1e9, links.gap);
}

std::string how_text(const CostQuestion& question, const SimRow& row) {
  if (!row.simulated) return "formula";
  std::string text = row.simulated_ranks < question.ranks
                         ? format("%d representative ranks", row.simulated_ranks)
                         : "every rank";
  if (row.segment_bytes > 0) text += ", chunks of " + size_text(row.segment_bytes);
  return text;
}

}  // namespace

std::string time_text(double seconds) {
  const double magnitude = std::max(seconds, 0.0);
  if (magnitude >= 1) return format("%.4g s", seconds);
  if (magnitude >= 1e-3) return format("%.4g ms", seconds * 1e3);
  return format("%.4g us", seconds * 1e6);
}

std::string size_text(std::int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return format("%.4g %s", value, units[unit]);
}

std::string heading_text(const CostQuestion& question) {
  std::string text(schedule_name(question.collective));
  if (question.collective != OpKind::kBarrier) text += " of " + size_text(question.bytes);
  return text + format(", %d ranks on %d nodes\n", question.ranks, question.nodes) +
         links_text(question.links) + "\n";
}

std::string table_text(const CostQuestion& question, const std::vector<SimRow>& rows) {
  std::size_t width = 9;
  for (const SimRow& row : rows) width = std::max(width, row.algorithm.size());
  const int w = static_cast<int>(width) + 2;
  const double bound = lower_bound(question).seconds();
  std::string text = format("%-*s %10s %9s %7s %12s %12s  %s\n", w, "algorithm", "time", "x bound",
                            "rounds", "rank sends", "node sends", "simulated");
  for (const SimRow& row : rows) {
    const std::string name = row.algorithm + (row.chosen ? " *" : "");
    text += format("%-*s %10s %9.3f %7d %12s %12s  %s\n", w, name.c_str(),
                   time_text(row.seconds).c_str(), bound > 0 ? row.seconds / bound : 1.0,
                   row.rounds, size_text(row.wire_bytes_max).c_str(),
                   row.simulated ? size_text(row.node_bytes_max).c_str() : "-",
                   how_text(question, row).c_str());
  }
  text += format("%-*s %10s\n", w, "(bound)", time_text(bound).c_str());
  return text + "* chosen by auto\n";
}

std::string crossover_text(const CostQuestion& question) {
  std::string text;
  for (const Crossover& crossover : crossovers(question, kSmallestCrossover, kLargest)) {
    if (!text.empty()) text += "; from " + size_text(crossover.from_bytes) + " ";
    text += crossover.algorithm;
  }
  return text;
}

std::string json_lines(const CostQuestion& question, const std::vector<SimRow>& rows) {
  std::string text;
  for (const SimRow& row : rows) {
    nlohmann::ordered_json json;
    json["op"] = schedule_name(question.collective);
    json["algorithm"] = row.algorithm;
    json["ranks"] = question.ranks;
    json["nodes"] = question.nodes;
    json["bytes"] = question.bytes;
    json["seconds"] = row.seconds;
    json["bound_seconds"] = lower_bound(question).seconds();
    json["wire_bytes_max"] = row.wire_bytes_max;
    json["chosen"] = row.chosen;
    json["node_bytes_max"] = row.node_bytes_max;
    json["rounds"] = row.rounds;
    json["formula_seconds"] = row.formula_seconds;
    json["simulated"] = row.simulated;
    json["simulated_ranks"] = row.simulated_ranks;
    text += json.dump() + "\n";
  }
  return text;
}

}  // namespace gradwire
