#include "apps/run/verdict.h"

#include <cstring>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr int kTimedOutStatus = 124;  // as timeout(1)

int status_of(const RankState& rank) {
  return rank.signal != 0 ? 128 + rank.signal : rank.exit_status;
}

}  // namespace

std::string signal_text(int signal) {
  const char* name = sigabbrev_np(signal);
  return format("signal %d (%s%s)", signal, name == nullptr ? "" : "SIG",
                name == nullptr ? "unknown" : name);
}

std::string describe_end(const RankState& rank, bool error) {
  if (rank.signal != 0) return "killed by " + signal_text(rank.signal);
  const std::string status = "exit status " + std::to_string(rank.exit_status);
  return !error || rank.last_error.empty() ? status : status + ": " + rank.last_error;
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

JobResult judge(const JobEnd& end) {
  if (end.interrupted_by != 0)
    return {128 + end.interrupted_by, "interrupted by " + signal_text(end.interrupted_by)};
  if (end.absent)
    return {1, format("rank %d ended with exit status 0 without joining the job, and other ranks "
                      "waited for it; start all ranks of the job, or use a smaller -n",
                      *end.absent)};
  if (end.first_failed) {
    const RankState& failed = end.ranks[static_cast<std::size_t>(*end.first_failed)];
    if (end.first_stopped && *end.first_stopped != *end.first_failed) {
      const RankState& stopped = end.ranks[static_cast<std::size_t>(*end.first_stopped)];
      return {status_of(failed), format("rank %d failed first: stopped by %s; then rank %d: %s",
                                        *end.first_stopped, signal_text(stopped.stopped_by).c_str(),
                                        *end.first_failed, describe_end(failed).c_str())};
    }
    return {status_of(failed),
            format("rank %d failed first: %s", *end.first_failed, describe_end(failed).c_str())};
  }
  if (end.output_error != 0)
    return {1, format("cannot write to standard %s (%s)", end.of_error ? "error" : "output",
                      std::strerror(end.output_error))};
  if (end.timeout)
    return {kTimedOutStatus,
            format("the job did not end within %g s (--timeout); still running: %s", *end.timeout,
                   end.still_running.c_str())};
  return {};
}

}  // namespace gradwire
