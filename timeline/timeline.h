// Tasks under virtual time: whole ticks of any length, so that results are exact. The one simulator
// below schedules of pipelines and placed operator graphs, which differ in the tasks that they are
// lowered to.
//
//   a task     starts when all tasks that it is after have ended, and all its resources are free;
//              has its resources for `ticks`, and ends `latency` later (a message that is under way
//              occupies no port any more). One of 0 ticks waits for its resources and takes none
//   order      at any time, tasks that could start do so in the order of (time when the last task
//              that they are after ended, `order`, number); one that has to wait for a resource
//              holds none, and lets those behind it start
//   at a time  what ends comes before what starts
//   instant    a task without ticks, latency and resources that ends as it starts: a point that
//              others wait for. What it sets free starts in the same round
//   a round    tasks without resources start first, by number, then those with resources
//
// This is list scheduling without preemption. Source: Graham, "Bounds on multiprocessing timing
// anomalies", SIAM J. Appl. Math. 1969.
#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

struct TimelineTask {
  std::int64_t ticks = 0;           // 0 or more
  std::int64_t latency = 0;         // 0 or more
  std::int64_t order = 0;           // among tasks that are ready since the same time
  std::vector<int> resources = {};  // from 0; none twice
  std::vector<int> after = {};      // numbers of tasks, in any order
  bool instant = false;
};

struct TimelineSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // latency included
  friend bool operator==(const TimelineSpan&, const TimelineSpan&) = default;
};

// A task that starts or ends.
struct TimelineStep {
  int task = 0;
  bool ends = false;
};

struct Timeline {
  std::int64_t makespan = 0;             // ticks until all tasks have ended
  std::vector<TimelineSpan> spans = {};  // by task
  std::vector<std::int64_t> busy = {};   // by resource: ticks that tasks had it
  std::vector<TimelineStep> steps = {};  // in the order in which they came about
};

// Deterministic: the same tasks give the same times. kInvalidArgument names the task: times below
// 0, or that add up to 2^62 ticks and more; a resource or a task that is not there; an instant one
// with ticks or resources; tasks that wait for each other.
Result<Timeline> run_timeline(const std::vector<TimelineTask>& tasks, int resources);

}  // namespace gradwire
