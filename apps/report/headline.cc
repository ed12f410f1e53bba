#include "apps/report/headline.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/counted.h"
#include "base/text.h"

namespace gradwire {
namespace {

// Different values in the order of the runs, "a, b"; of many the first three.
class Values {
 public:
  void add(const std::string& value) {
    if (!value.empty() && seen_.insert(value).second) order_.push_back(value);
  }
  bool empty() const { return order_.empty(); }
  std::string text() const {
    std::string all;
    for (std::size_t i = 0; i < order_.size() && i < kMost; ++i)
      all += (i == 0 ? "" : ", ") + order_[i];
    return order_.size() > kMost ? all + ", …" : all;
  }

 private:
  static constexpr std::size_t kMost = 3;
  std::set<std::string> seen_;
  std::vector<std::string> order_;
};

std::string total_of(const RunResult& run, const char* key) {
  const auto found = run.metrics.totals.find(key);
  if (found == run.metrics.totals.end()) return {};
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::string flag_of(const StudyCase& one, const char* key) {
  const auto found = one.flags.find(key);
  return found == one.flags.end() ? std::string() : found->second;
}

// By row: what it has of one thing, in all settings.
using ByRow = std::map<std::string, std::set<std::string>>;

// Whether the thing alone tells every row from all others.
bool tells_apart(const ByRow& rows) {
  std::set<std::string> seen;
  return std::ranges::all_of(rows, [&](const auto& row) {
    return row.second.size() == 1 && seen.insert(*row.second.begin()).second;
  });
}

// What is compared: "3 compressors", "2 meshes"; "4 rows" where they differ in several things.
std::string rows_text(const StudyPlan& plan) {
  ByRow compressors;
  ByRow meshes;
  for (const StudyCase& one : plan.cases) {
    compressors[one.row].insert(one.compressor);
    meshes[one.row].insert(flag_of(one, "parallel"));
  }
  const auto count = static_cast<std::int64_t>(compressors.size());
  if (tells_apart(compressors)) return counted(count, "compressor");
  return tells_apart(meshes) ? counted(count, "mesh", "es") : counted(count, "row");
}

std::string place_of(const StudyCase& one) {
  return counted(one.ranks, "rank") +
         (one.transport == "inproc" ? " as threads of one process"
                                    : " as processes over " + one.transport) +
         (one.lab.empty() ? "" : " on shaped links (" + one.lab + ")");
}

std::string duration_text(double seconds) {
  if (seconds < 120) return format("%.0f s", seconds);
  return seconds < 7200 ? format("%.0f min", seconds / 60) : format("%.1f h", seconds / 3600);
}

}  // namespace

double seconds_of_runs(const Results& results) {
  double seconds = 0;
  for (const RunResult& run : results.runs) seconds += run.record.seconds;
  return seconds;
}

std::string headline_of(const Results& results) {
  Values models;
  Values data;
  Values samples;
  Values steps;
  Values batches;
  Values places;
  for (const StudyCase& one : results.plan().cases) {
    models.add(flag_of(one, "model"));
    data.add(flag_of(one, "data"));
    batches.add(flag_of(one, "batch"));
    places.add(place_of(one));
  }
  for (const RunResult& run : results.runs) {
    models.add(total_of(run, "model"));
    data.add(total_of(run, "data"));
    samples.add(total_of(run, "test_samples"));
    if (!run.diverged()) steps.add(total_of(run, "steps"));
    batches.add(total_of(run, "batch"));
  }
  std::string text = models.empty() ? "Training" : models.text();
  if (!data.empty()) text += " on " + data.text();
  if (!samples.empty()) text += " (" + samples.text() + " test samples)";
  text += ", " + rows_text(results.plan()) + " × " +
          counted(static_cast<std::int64_t>(results.plan().seeds.size()), "seed") + ": ";
  if (!steps.empty()) text += steps.text() + " steps ";
  if (!batches.empty()) text += "of batch " + batches.text() + " ";
  text += "by " + places.text() + ".";
  if (results.runs.empty()) return text;
  return text + " " + counted(static_cast<std::int64_t>(results.runs.size()), "run") + " took " +
         duration_text(seconds_of_runs(results)) + " in all.";
}

}  // namespace gradwire
