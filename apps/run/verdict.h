// What a job came to: the exit status and the one line that says whose fault it was.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gradwire {

struct RankState {
  bool running = true;
  int exit_status = 0;  // when it ended by itself
  int signal = 0;       // when a signal ended it; 0 otherwise
  int stopped_by = 0;   // the signal it is stopped by, while it is; or was, when the first rank
                        // failed
  std::string last_error = {};  // the last "gradwire: error: " it printed, without these words

  bool failed() const { return !running && (exit_status != 0 || signal != 0); }
};

struct JobEnd {
  std::vector<RankState> ranks;
  std::optional<int> first_failed = {};   // the rank that ended first with a failure
  std::optional<int> first_stopped = {};  // the rank stopped for longest when that happened
  std::optional<int> absent = {};         // ended well, but before it had joined the others
  std::optional<double> timeout = {};     // seconds: --timeout has ended the job
  std::string still_running = {};         // at that time: "ranks 1, 3"
  int interrupted_by = 0;                 // the signal that told the launcher to end the job
  int output_error = 0;   // errno of what the launcher could not write of the ranks' output
  bool of_error = false;  // which was their standard error
};

struct JobResult {
  int exit_status = 0;
  std::string message;  // "" when all is well
};

// 0 when every rank ended with 0; else the status of the first rank that failed, 128 + signal for a
// killed one; 124 when --timeout ended the job, 128 + signal when the launcher was told to end it,
// 1 when it could not write their output, or ended ranks that looked for one that had ended well. A
// rank that was stopped while the others ran into their deadlines is named before these.
JobResult judge(const JobEnd& end);

// "killed by signal 9 (SIGKILL)", "exit status 3"; with `error` ": " and its last error follow.
std::string describe_end(const RankState& rank, bool error = true);
// "signal 9 (SIGKILL)".
std::string signal_text(int signal);
// "rank 1" or "ranks 1, 2, 5".
std::string rank_list(const std::vector<int>& ranks);

}  // namespace gradwire
