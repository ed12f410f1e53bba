// A run as a trace that chrome://tracing and ui.perfetto.dev show: a process for every rank, a row
// for every stream of work in it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/trace/rank_trace.h"
#include "base/files.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// One rank's events, a JSON value a line, without a comma behind the last: the names of its process
// and its threads, and a complete event ("X") for every span, in microseconds since `origin` on
// rank 0's clock; `offset`: what this rank's clock is moved by (both in nanoseconds).
std::string trace_events(const RankTrace& trace, int rank, std::int64_t origin,
                         std::int64_t offset);

// Of rank 0: the file, which is there from the run's start on, so that what cannot be written is
// known before anything is trained.
class TraceFile {
 public:
  // Replaces what was there. kInvalidArgument names the path and the system's reason.
  static Result<TraceFile> create(const std::string& path);
  // {"traceEvents": [EVENTS of all ranks], ...}. Once.
  Status write(const std::vector<std::string>& events_by_rank);

 private:
  TraceFile(File file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  Status failed() const;

  File file_;
  std::string path_;
};

// Collective, after the last step. `file` is null but on rank 0.
Status write_trace(Communicator& communicator, const RankTrace& trace, TraceFile* file);

}  // namespace gradwire
