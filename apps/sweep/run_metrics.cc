#include "apps/sweep/run_metrics.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "base/files.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> maybe(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

double number(const Json& line, const char* key) {
  return maybe(line, key).value_or(std::numeric_limits<double>::quiet_NaN());
}

// The first of what is read of a line that holds something else than a number. What is not finite
// was written as null.
std::optional<std::string> no_number(const Json& line) {
  for (const char* key :
       {"step", "loss", "lr", "accuracy", "test_loss", "perplexity", "bytes_sent", "payload_bytes",
        "dense_bytes", "step_seconds", "compute_seconds", "nmse", "encode_seconds", "wire_seconds",
        "decode_seconds", "exposed_seconds", "stage_wait_seconds"}) {
    const auto found = line.find(key);
    if (found != line.end() && !found->is_number() && !found->is_null()) return key;
  }
  return std::nullopt;
}

bool is_total(const Json& line) {
  const auto found = line.find("total");
  return found != line.end() && found->is_boolean() && found->get<bool>();
}

std::map<std::string, double> traffic_of(const Json& line) {
  std::map<std::string, double> traffic;
  const auto found = line.find("traffic_bytes");
  if (found == line.end() || !found->is_object()) return traffic;
  for (const auto& [name, bytes] : found->items()) {
    if (bytes.is_number()) traffic[name] = bytes.get<double>();
  }
  return traffic;
}

StepMetrics step_of(const Json& line) {
  return {.step = static_cast<std::int64_t>(maybe(line, "step").value_or(0)),
          .loss = number(line, "loss"),
          .lr = number(line, "lr"),
          .accuracy = maybe(line, "accuracy"),
          .test_loss = maybe(line, "test_loss"),
          .perplexity = maybe(line, "perplexity"),
          .bytes_sent = number(line, "bytes_sent"),
          .traffic = traffic_of(line),
          .payload_bytes = number(line, "payload_bytes"),
          .dense_bytes = number(line, "dense_bytes"),
          .step_seconds = number(line, "step_seconds"),
          .compute_seconds = number(line, "compute_seconds"),
          .encode_seconds = number(line, "encode_seconds"),
          .wire_seconds = number(line, "wire_seconds"),
          .decode_seconds = number(line, "decode_seconds"),
          .exposed_seconds = number(line, "exposed_seconds"),
          .stage_wait_seconds = maybe(line, "stage_wait_seconds"),
          .nmse = maybe(line, "nmse"),
          .exact_norm = maybe(line, "exact_norm"),
          .residual_norm = maybe(line, "residual_norm")};
}

// A result that is not there must not count as 0, or as a loss that was not finite.
Status check_complete(const std::string& path, const RunMetrics& run) {
  const auto lacks = [&](const std::string& what) {
    return Status(Code::kInvalidArgument, path + ": " + what + " of a complete run)");
  };
  if (!run.complete)
    return lacks(format("got %zu steps and no totals (expected both", run.steps.size()));
  if (!maybe(run.totals, "accuracy")) return lacks("totals have no accuracy (expected one");
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    if (std::isfinite(run.steps[i].loss)) continue;
    return lacks(format("line %zu has no loss (expected one", i + 1));
  }
  return {};
}

}  // namespace

Result<RunMetrics> read_metrics(const std::string& path) {
  GW_TRY(check_readable(path));
  std::ifstream file(path);
  if (!file) return Status(Code::kInvalidArgument, "cannot read metrics (" + path + ")");
  RunMetrics run;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) {
      run.torn = file.peek() == std::ifstream::traits_type::eof();
      if (run.torn) break;
      return Status(Code::kInvalidArgument,
                    format("%s, line %d: not a JSON object", path.c_str(), number));
    }
    if (const auto key = no_number(line)) {
      return Status(Code::kInvalidArgument,
                    format("%s, line %d: '%s' must be a number (got %s)", path.c_str(), number,
                           key->c_str(), line.at(*key).dump().c_str()));
    }
    if (is_total(line)) {
      run.complete = true;
      run.totals = line;
    } else {
      run.steps.push_back(step_of(line));
      run.diverged = run.diverged || !std::isfinite(run.steps.back().loss);
    }
    if (const auto accuracy = maybe(line, "accuracy")) run.accuracy = accuracy;
    if (const auto loss = maybe(line, "test_loss")) run.test_loss = loss;
    run.is_text = run.is_text || line.contains("perplexity");
  }
  return run;
}

Result<RunMetrics> read_whole_metrics(const std::string& folder, const RunRecord& record) {
  const std::string path = metrics_path(folder);
  GW_ASSIGN(RunMetrics run, read_metrics(path));
  const auto lacks = [&](const std::string& what) {
    return Status(Code::kInvalidArgument, path + ": " + what);
  };
  const auto seen = static_cast<long long>(run.steps.size());
  if (run.torn) return lacks(format("line %lld is cut off", seen + 1));
  for (long long i = 0; i < seen; ++i) {
    const auto step = static_cast<long long>(run.steps[static_cast<std::size_t>(i)].step);
    if (step != i) return lacks(format("line %lld: got step %lld, expected %lld", i + 1, step, i));
  }
  if (record.outcome == RunOutcome::kComplete) GW_TRY(check_complete(path, run));
  if (record.steps && *record.steps != seen)
    return lacks(format("got %lld steps, expected %lld, as when the run ended", seen,
                        static_cast<long long>(*record.steps)));
  const auto counted = run.totals.find("steps");
  if (!run.complete || counted == run.totals.end() || *counted == seen) return run;
  return lacks(
      format("got %lld steps, expected %s, as in its totals", seen, counted->dump().c_str()));
}

}  // namespace gradwire
