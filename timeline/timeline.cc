#include "timeline/timeline.h"

#include <algorithm>
#include <compare>
#include <functional>
#include <queue>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostTicks = std::int64_t{1} << 62;

Status bad_task(std::size_t task, const std::string& what) {
  return {Code::kInvalidArgument, format("timeline: task %zu %s", task, what.c_str())};
}

bool outside(const std::vector<int>& numbers, std::size_t count) {
  return std::ranges::any_of(
      numbers, [&](int one) { return one < 0 || static_cast<std::size_t>(one) >= count; });
}

Status check_tasks(const std::vector<TimelineTask>& tasks, int resources) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const TimelineTask& task = tasks[i];
    if (task.ticks < 0 || task.latency < 0) {
      return bad_task(
          i, format("of %lld ticks and a latency of %lld (expected 0 or more)",
                    static_cast<long long>(task.ticks), static_cast<long long>(task.latency)));
    }
    if (task.ticks >= kMostTicks - sum || task.latency >= kMostTicks - sum - task.ticks) {
      return bad_task(i, "makes a sum of 2^62 ticks and more");
    }
    sum += task.ticks + task.latency;
    if (outside(task.resources, static_cast<std::size_t>(std::max(resources, 0)))) {
      return bad_task(i,
                      format("has a resource that is not there (expected 0 to %d)", resources - 1));
    }
    std::vector<int> sorted = task.resources;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end()) {
      return bad_task(i, "has a resource twice");
    }
    if (outside(task.after, tasks.size())) {
      return bad_task(
          i, format("is after a task that is not there (expected 0 to %zu)", tasks.size() - 1));
    }
    if (task.instant && (task.ticks > 0 || task.latency > 0 || !task.resources.empty())) {
      return bad_task(i, "is instant, and has ticks, latency or resources (expected none)");
    }
  }
  return {};
}

// One run.
class TimelineRun {
 public:
  TimelineRun(const std::vector<TimelineTask>& tasks, int resources)
      : tasks_(tasks),
        waits_for_(tasks.size()),
        next_(tasks.size()),
        busy_(static_cast<std::size_t>(resources)),
        waiting_(busy_.size()) {
    result_.spans.resize(tasks.size());
    result_.busy.resize(busy_.size());
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      waits_for_[i] = static_cast<int>(tasks[i].after.size());
      for (const int other : tasks[i].after) {
        next_[static_cast<std::size_t>(other)].push_back(static_cast<int>(i));
      }
    }
  }

  Result<Timeline> run() {
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (waits_for_[i] == 0) free_.push(static_cast<int>(i));
    }
    while (true) {
      start_what_can();
      if (events_.empty()) break;
      now_ = events_.top().time;
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        if (event.ends) {
          end(event.task);
        } else {
          release(event.task);
        }
      }
    }
    if (ended_ < tasks_.size()) return stuck();
    result_.makespan = now_;
    return std::move(result_);
  }

 private:
  // Of a task that is ready: what comes first starts first.
  struct Turn {
    std::int64_t ready = 0;
    std::int64_t order = 0;
    int task = 0;
    int freed = -1;  // the resource that it had waited for
    std::strong_ordering operator<=>(const Turn& other) const {
      if (const auto by_ready = ready <=> other.ready; by_ready != nullptr) return by_ready;
      if (const auto by_order = order <=> other.order; by_order != nullptr) return by_order;
      return task <=> other.task;
    }
    bool operator==(const Turn& other) const { return (*this <=> other) == nullptr; }
  };
  struct Event {
    std::int64_t time = 0;
    std::uint64_t number = 0;
    int task = 0;
    bool ends = true;  // false: lets its resources go
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  using Turns = std::priority_queue<Turn, std::vector<Turn>, std::greater<>>;

  const TimelineTask& task(int number) const { return tasks_[static_cast<std::size_t>(number)]; }
  TimelineSpan& span(int number) { return result_.spans[static_cast<std::size_t>(number)]; }
  char& busy(int resource) { return busy_[static_cast<std::size_t>(resource)]; }
  Turns& waiting(int resource) { return waiting_[static_cast<std::size_t>(resource)]; }

  void start_what_can() {
    while (true) {
      while (!free_.empty()) {
        const int number = free_.top();
        free_.pop();
        if (task(number).resources.empty()) {
          start(number);
        } else {
          turns_.push({now_, task(number).order, number, -1});
        }
      }
      if (turns_.empty()) return;
      const Turn turn = turns_.top();
      turns_.pop();
      take(turn);
    }
  }

  // Of the tasks that wait for a resource only the first is among turns_ when it becomes free; the
  // next comes when that one has had its turn and has not taken it.
  void take(const Turn& turn) {
    int missing = -1;
    for (const int resource : task(turn.task).resources) {
      if (busy(resource) != 0) missing = resource;
    }
    if (missing >= 0) {
      waiting(missing).push({turn.ready, turn.order, turn.task, -1});
    } else {
      start(turn.task);
    }
    if (turn.freed >= 0 && busy(turn.freed) == 0) offer(turn.freed);
  }

  void offer(int resource) {
    Turns& all = waiting(resource);
    if (all.empty()) return;
    Turn turn = all.top();
    all.pop();
    turn.freed = resource;
    turns_.push(turn);
  }

  void start(int number) {
    const TimelineTask& one = task(number);
    span(number) = {now_, now_ + one.ticks + one.latency};
    result_.steps.push_back({number, false});
    if (one.instant) {
      end(number);
      return;
    }
    if (one.ticks > 0 && !one.resources.empty()) {
      for (const int resource : one.resources) {
        busy(resource) = 1;
        result_.busy[static_cast<std::size_t>(resource)] += one.ticks;
      }
      events_.push({now_ + one.ticks, events_made_++, number, false});
    }
    events_.push({now_ + one.ticks + one.latency, events_made_++, number, true});
  }

  void release(int number) {
    for (const int resource : task(number).resources) {
      busy(resource) = 0;
      offer(resource);
    }
  }

  void end(int number) {
    ++ended_;
    result_.steps.push_back({number, true});
    for (const int follower : next_[static_cast<std::size_t>(number)]) {
      if (--waits_for_[static_cast<std::size_t>(follower)] == 0) free_.push(follower);
    }
  }

  Status stuck() const {
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (waits_for_[i] > 0) return bad_task(i, "waits for itself by way of others");
    }
    return {Code::kInternal, "timeline: tasks are left that wait for nothing"};
  }

  const std::vector<TimelineTask>& tasks_;
  std::int64_t now_ = 0;
  std::size_t ended_ = 0;
  std::uint64_t events_made_ = 0;
  std::vector<int> waits_for_;          // by task: tasks before it that have not ended
  std::vector<std::vector<int>> next_;  // by task: those that are after it
  std::vector<char> busy_;              // by resource
  std::vector<Turns> waiting_;          // by resource
  // Ready since now, not looked at yet.
  std::priority_queue<int, std::vector<int>, std::greater<>> free_;
  Turns turns_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Timeline result_;
};

}  // namespace

Result<Timeline> run_timeline(const std::vector<TimelineTask>& tasks, int resources) {
  GW_TRY(check_tasks(tasks, resources));
  return TimelineRun(tasks, std::max(resources, 0)).run();
}

}  // namespace gradwire
