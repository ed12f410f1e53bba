#include "apps/sweep/child_pool.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "apps/sweep/child.h"
#include "apps/sweep/run_record.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

struct Running {
  PoolJob job;
  Child child;
  Clock::time_point since;
  std::string started;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// nullopt while it runs.
std::optional<PoolResult> result_of(Running& running) {
  const double seconds = seconds_since(running.since);
  const auto status = running.child.poll();
  const bool late = !status && seconds > running.job.timeout_seconds;
  if (!status && !late) return std::nullopt;
  if (late) running.child.end();
  return PoolResult{.index = running.job.index,
                    .exit_status = status.value_or(124),
                    .timed_out = late,
                    .started = running.started,
                    .seconds = seconds,
                    .peak_bytes = running.child.peak_bytes()};
}

}  // namespace

Status run_children(std::deque<PoolJob> jobs, Capacity capacity, PoolObserver& observer) {
  std::vector<Running> running;
  while (!jobs.empty() || !running.empty()) {
    while (!jobs.empty() && capacity.admits(jobs.front().load)) {
      PoolJob job = std::move(jobs.front());
      jobs.pop_front();
      GW_TRY(observer.starting(job.index));
      GW_ASSIGN(Child child, Child::start(job.command.argv, job.log, job.command.environment));
      capacity.start(job.load);
      running.push_back({std::move(job), std::move(child), Clock::now(), utc_now()});
    }
    for (std::size_t i = 0; i < running.size();) {
      const auto result = result_of(running[i]);
      if (!result) {
        ++i;
        continue;
      }
      capacity.end(running[i].job.load);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      GW_TRY(observer.ended(*result));
    }
    std::vector<std::size_t> indices;
    for (const Running& one : running) indices.push_back(one.job.index);
    observer.waiting(indices);
    if (!running.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

}  // namespace gradwire
