// The time of whole operators on devices, slowly and without the planner's lowering: at every time
// all operators and messages are looked at in order until none can start.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/graph/operator_graph.h"

namespace gradwire::reference {

// On a cluster of one node without a bus: a device sends one message at a time and receives one.
class SlowPlacement {
 public:
  SlowPlacement(const OperatorGraph& graph, const Cluster& cluster, std::vector<int> device_of)
      : graph_(graph), cluster_(cluster), device_of_(std::move(device_of)) {}

  std::int64_t run() {
    plan();
    while (true) {
      while (start_one()) {
      }
      std::int64_t next = std::numeric_limits<std::int64_t>::max();
      for (const Work& one : works_) {
        if (one.begin < 0 || one.ended) continue;
        next = std::min(next, one.begin + one.ticks + one.latency);
        if (one.begin + one.ticks > now_) next = std::min(next, one.begin + one.ticks);
      }
      if (next == std::numeric_limits<std::int64_t>::max()) return now_;
      now_ = next;
      for (Work& one : works_) {
        if (one.begin >= 0 && one.begin + one.ticks + one.latency <= now_) one.ended = true;
      }
    }
  }

 private:
  struct Work {
    std::int64_t ticks = 0;
    std::int64_t latency = 0;
    int device = -1;  // an operator's
    int from = -1;    // a message's
    int to = -1;
    std::int64_t order = 0;
    std::vector<std::size_t> after = {};
    std::int64_t begin = -1;
    bool ended = false;
  };

  int device(int number) const { return device_of_[static_cast<std::size_t>(number)]; }

  std::size_t compute(int number, std::int64_t macs, std::int64_t order,
                      std::vector<std::size_t> after) {
    works_.push_back({.ticks = compute_ticks(cluster_.type_of(device(number)), macs),
                      .device = device(number),
                      .order = order,
                      .after = std::move(after)});
    return works_.size() - 1;
  }
  std::size_t send(int from, int to, std::int64_t bytes, std::int64_t order, std::size_t after) {
    const ClusterLink& link = cluster_.links.front();
    works_.push_back({.ticks = send_ticks({link.latency, link.bytes_per_second, {}}, bytes),
                      .latency = link.latency,
                      .from = from,
                      .to = to,
                      .order = order,
                      .after = {after}});
    return works_.size() - 1;
  }

  void plan() {
    const int count = graph_.size();
    std::vector<std::size_t> forward;
    std::vector<std::vector<std::pair<int, std::size_t>>> sent(graph_.operators.size());
    for (int number = 0; number < count; ++number) {
      std::vector<std::size_t> after;
      for (const int input : graph_.at(number).inputs) {
        std::size_t last = forward[static_cast<std::size_t>(input)];
        if (device(input) != device(number)) {
          auto& known = sent[static_cast<std::size_t>(input)];
          const auto place =
              std::ranges::find(known, device(number), &std::pair<int, std::size_t>::first);
          if (place == known.end()) {
            last = send(device(input), device(number), graph_.output_bytes(input), input, last);
            known.emplace_back(device(number), last);
          } else {
            last = place->second;
          }
        }
        after.push_back(last);
      }
      forward.push_back(compute(number, graph_.at(number).forward_macs, number, after));
    }
    std::vector<std::size_t> backward(graph_.operators.size());
    const auto readers = graph_.readers();
    for (int number = count - 1; number >= 0; --number) {
      std::vector<std::size_t> after{forward[static_cast<std::size_t>(number)]};
      for (const int reader : readers[static_cast<std::size_t>(number)]) {
        std::size_t last = backward[static_cast<std::size_t>(reader)];
        if (device(reader) != device(number)) {
          last = send(device(reader), device(number), graph_.output_bytes(number),
                      2 * count - reader, last);
        }
        after.push_back(last);
      }
      backward[static_cast<std::size_t>(number)] =
          compute(number, graph_.at(number).backward_macs, 2 * count - number, after);
    }
  }

  bool is_busy(int Work::*end, int device) const {
    return std::ranges::any_of(works_, [&](const Work& one) {
      return one.*end == device && one.begin >= 0 && one.begin + one.ticks > now_;
    });
  }
  bool can_start(const Work& one) const {
    if (one.device >= 0) return !is_busy(&Work::device, one.device);
    return !is_busy(&Work::from, one.from) && !is_busy(&Work::to, one.to);
  }
  bool start_one() {
    std::tuple<std::int64_t, std::int64_t, std::size_t> best{
        std::numeric_limits<std::int64_t>::max(), 0, 0};
    for (std::size_t i = 0; i < works_.size(); ++i) {
      const Work& one = works_[i];
      if (one.begin >= 0) continue;
      std::int64_t ready = 0;
      bool all = true;
      for (const std::size_t other : one.after) {
        all = all && works_[other].ended;
        ready = std::max(ready, works_[other].begin + works_[other].ticks + works_[other].latency);
      }
      if (all && can_start(one)) best = std::min(best, {ready, one.order, i});
    }
    if (std::get<0>(best) == std::numeric_limits<std::int64_t>::max()) return false;
    works_[std::get<2>(best)].begin = now_;
    return true;
  }

  const OperatorGraph& graph_;
  const Cluster& cluster_;
  std::vector<int> device_of_;
  std::vector<Work> works_;
  std::int64_t now_ = 0;
};

}  // namespace gradwire::reference
