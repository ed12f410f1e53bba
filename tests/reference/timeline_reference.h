// Tasks under virtual time, slowly: at every time all tasks are looked at in the order that
// timeline/timeline.h names, again and again until none can start.
#pragma once

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "timeline/timeline.h"

namespace gradwire::reference {

class SlowTimeline {
 public:
  explicit SlowTimeline(const std::vector<TimelineTask>& tasks)
      : tasks_(tasks), began_(tasks.size(), -1), spans_(tasks.size()) {}

  // Of tasks that do not wait for each other.
  std::vector<TimelineSpan> run() {
    while (true) {
      while (start_one()) {
      }
      std::int64_t next = std::numeric_limits<std::int64_t>::max();
      for (std::size_t i = 0; i < tasks_.size(); ++i) {
        if (began_[i] < 0) continue;
        for (const std::int64_t time : {began_[i] + tasks_[i].ticks, spans_[i].end}) {
          if (time > now_) next = std::min(next, time);
        }
        if (!seen(i)) next = now_;  // one that takes no time ends in a round of its own
      }
      if (next == std::numeric_limits<std::int64_t>::max()) return spans_;
      now_ = next;
      for (std::size_t i = 0; i < tasks_.size(); ++i) {
        if (began_[i] >= 0 && spans_[i].end <= now_) ended_.push_back(i);
      }
    }
  }

 private:
  bool seen(std::size_t i) const {
    return spans_[i].end > now_ || std::ranges::find(ended_, i) != ended_.end();
  }
  // The time since when it is ready; -1: not yet.
  std::int64_t ready(std::size_t i) const {
    std::int64_t since = 0;
    for (const int other : tasks_[i].after) {
      const auto one = static_cast<std::size_t>(other);
      if (std::ranges::find(ended_, one) == ended_.end()) return -1;
      since = std::max(since, spans_[one].end);
    }
    return since;
  }
  bool is_free(int resource) const {
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (began_[i] < 0 || began_[i] + tasks_[i].ticks <= now_) continue;
      if (std::ranges::find(tasks_[i].resources, resource) != tasks_[i].resources.end()) {
        return false;
      }
    }
    return true;
  }
  void start(std::size_t i) {
    began_[i] = now_;
    spans_[i] = {now_, now_ + tasks_[i].ticks + tasks_[i].latency};
    if (tasks_[i].instant) ended_.push_back(i);
  }
  bool start_one() {
    std::tuple<std::int64_t, std::int64_t, std::size_t> best{
        std::numeric_limits<std::int64_t>::max(), 0, 0};
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      const std::int64_t since = began_[i] >= 0 ? -1 : ready(i);
      if (since < 0) continue;
      if (tasks_[i].resources.empty()) {
        start(i);
        return true;
      }
      if (std::ranges::all_of(tasks_[i].resources, [this](int one) { return is_free(one); })) {
        best = std::min(best, {since, tasks_[i].order, i});
      }
    }
    if (std::get<0>(best) == std::numeric_limits<std::int64_t>::max()) return false;
    start(std::get<2>(best));
    return true;
  }

  const std::vector<TimelineTask>& tasks_;
  std::int64_t now_ = 0;
  std::vector<std::int64_t> began_;
  std::vector<TimelineSpan> spans_;
  std::vector<std::size_t> ended_;
};

}  // namespace gradwire::reference
