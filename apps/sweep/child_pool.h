// Runs many child processes, as many at once as the machine bears.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "apps/sweep/capacity.h"
#include "apps/sweep/run_spec.h"
#include "gradwire/status.h"

namespace gradwire {

struct PoolJob {
  std::size_t index = 0;  // the caller's own
  RunCommand command;     // argv[0] is a path
  std::string log;        // its output goes there
  RunLoad load;
  double timeout_seconds = 0;  // a child that takes longer is ended
};

struct PoolResult {
  std::size_t index = 0;
  int exit_status = 0;  // 128 + signal for a killed one
  bool timed_out = false;
  std::string started;  // UTC
  double seconds = 0;
  std::uint64_t peak_bytes = 0;  // of its largest process
};

// All calls come from the thread that called run_children(); an error ends it with that error.
class PoolObserver {
 public:
  virtual ~PoolObserver() = default;
  virtual Status starting(std::size_t index) = 0;
  virtual Status ended(const PoolResult& result) = 0;
  // Some times a second; the jobs that run.
  virtual void waiting(const std::vector<std::size_t>& running) = 0;
};

// Starts jobs in order, each as soon as `capacity` admits it, and returns when all have ended. On
// an error the children that still run are ended. kInvalidArgument when a log cannot be written.
Status run_children(std::deque<PoolJob> jobs, Capacity capacity, PoolObserver& observer);

}  // namespace gradwire
