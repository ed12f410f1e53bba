// What is kept of a run, in a folder of its own: run.json (what it was, where and how it ended),
// metrics.jsonl and log.txt. run.json is written last: a folder without one is half a run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/machine.h"
#include "gradwire/status.h"

namespace gradwire {

enum class RunOutcome : std::uint8_t {
  kComplete,
  kDiverged,  // ended by a loss or gradient that is not finite: complete, and a result
  kFailed
};

struct RunRecord {
  std::string row;  // labels, for people
  std::string setting;
  nlohmann::ordered_json spec;
  std::string command;
  Machine machine;
  std::string host;
  std::string started;  // "2026-05-04T12:00:00Z"
  double seconds = 0;
  std::uint64_t peak_bytes = 0;  // of its largest process
  RunOutcome outcome = RunOutcome::kFailed;
  int exit_status = 0;
  std::string reason;  // in the run's own words, where it is not complete
  // Lines of steps in its metrics when it ended; nullopt in records of before there was this.
  std::optional<std::int64_t> steps = {};
};

nlohmann::ordered_json to_json(const RunRecord& record);
// nullopt where there is none, or none that ended.
std::optional<RunRecord> read_record(const std::string& folder);
Status write_record(const std::string& folder, const RunRecord& record);

inline std::string metrics_path(const std::string& folder) { return folder + "/metrics.jsonl"; }
inline std::string log_path(const std::string& folder) { return folder + "/log.txt"; }

nlohmann::ordered_json to_json(const Machine& machine);

// The error line of a log, else its last line: what a user would look for in it.
std::string words_of(const std::string& log);
// Whether a log ends with an error about values that are not finite.
bool says_not_finite(const std::string& log);

// Now, in UTC, "2026-05-04T12:00:00Z".
std::string utc_now();
std::string host_name();

}  // namespace gradwire
