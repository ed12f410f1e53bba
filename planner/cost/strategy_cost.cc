#include "planner/cost/strategy_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "base/text.h"

namespace gradwire {
namespace {

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return std::max<std::int64_t>(end - begin, 0); }
  friend auto operator<=>(const Interval&, const Interval&) = default;
};

Interval part_of(std::int64_t elements, int parts, int number) {
  return {elements * number / parts, elements * (number + 1) / parts};
}

Interval common(const Interval& a, const Interval& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Samples, positions, channels.
using Box = std::array<Interval, 3>;

std::int64_t elements(const Box& box) { return box[0].size() * box[1].size() * box[2].size(); }

Box box_of(const OperatorGraph& graph, int number, const OperatorSplit& split, int part) {
  const GraphOperator& one = graph.at(number);
  return {part_of(graph.samples, split.samples, part / (split.positions * split.channels)),
          part_of(one.positions, split.positions, part / split.channels % split.positions),
          part_of(one.channels, split.channels, part % split.channels)};
}

// What a reader's part needs of one of its inputs.
Box read_box(const GraphOperator& reader, const GraphOperator& input, const Box& part) {
  Box box = part;
  if (reader.positions != input.positions) box[1] = {0, input.positions};
  if (reader.reads_all_channels) box[2] = {0, input.channels};
  return box;
}

std::int64_t share(std::int64_t whole, std::int64_t part, std::int64_t of) {
  return static_cast<std::int64_t>(
      std::ceil(static_cast<double>(whole) * static_cast<double>(part) / static_cast<double>(of)));
}

std::int64_t compressed(std::int64_t bytes, double ratio) {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(bytes) * ratio));
}

// What the tasks of a strategy follow from, besides itself.
struct Problem {
  const OperatorGraph& graph;
  const Cluster& cluster;
  const CostOptions& options;
  const std::vector<std::vector<int>>& readers;
  const std::vector<int>& type_of;  // by device
  PathCache& paths;
};

// The tasks of one strategy.
class Lowering {
 public:
  Lowering(const Problem& problem, const OperatorStrategy& strategy)
      : problem_(problem), strategy_(strategy) {
    for (const OperatorSplit& split : strategy) {
      forward_.emplace_back(static_cast<std::size_t>(split.parts()), -1);
      backward_.emplace_back(static_cast<std::size_t>(split.parts()), -1);
    }
  }

  LoweredStrategy run() {
    for (int number = 0; number < graph().size(); ++number) add_forward(number);
    for (int number = graph().size() - 1; number >= 0; --number) add_backward(number);
    for (int number = 0; number < graph().size(); ++number) add_reductions(number);
    return std::move(lowered_);
  }

 private:
  const OperatorGraph& graph() const { return problem_.graph; }
  const OperatorSplit& split(int number) const {
    return strategy_[static_cast<std::size_t>(number)];
  }
  int device(int number, int part) const {
    return split(number).devices[static_cast<std::size_t>(part)];
  }
  Box box(int number, int part) const { return box_of(graph(), number, split(number), part); }
  int& forward(int number, int part) {
    return forward_[static_cast<std::size_t>(number)][static_cast<std::size_t>(part)];
  }
  int& backward(int number, int part) {
    return backward_[static_cast<std::size_t>(number)][static_cast<std::size_t>(part)];
  }

  enum class Pass : std::uint8_t { kForward, kBackward };

  // The graph's order on the way forward, and from its end on the way back.
  int add(Pass pass, TimelineTask task, StrategyTask meaning) {
    const std::int64_t back = 2 * static_cast<std::int64_t>(graph().size()) - meaning.operation;
    task.order = pass == Pass::kForward ? meaning.operation : back;
    lowered_.tasks.push_back(std::move(task));
    lowered_.meaning.push_back(std::move(meaning));
    return static_cast<int>(lowered_.tasks.size()) - 1;
  }

  std::int64_t compute_time(int number, int part, std::int64_t macs) const {
    const GraphOperator& one = graph().at(number);
    const auto type =
        static_cast<std::size_t>(problem_.type_of[static_cast<std::size_t>(device(number, part))]);
    const std::int64_t all = graph().samples * one.positions * one.channels;
    return compute_ticks(problem_.cluster.types[type],
                         share(macs, elements(box(number, part)), all));
  }

  // Each pair of a reader's part and a part of its input that it reads something of.
  template <typename Visit>
  void each_read(int reader, int input, const Visit& visit) const {
    for (int part = 0; part < split(reader).parts(); ++part) {
      const Box wanted = read_box(graph().at(reader), graph().at(input), box(reader, part));
      for (int from = 0; from < split(input).parts(); ++from) {
        const Box has = box(input, from);
        const Box both{common(wanted[0], has[0]), common(wanted[1], has[1]),
                       common(wanted[2], has[2])};
        if (elements(both) > 0) visit(part, from, both);
      }
    }
  }

  TimelineTask message(int from, int to, std::int64_t bytes, int after) {
    const ClusterPath& path = problem_.paths.at(from, to);
    return {.ticks = send_ticks(path, compressed(bytes, problem_.options.activation_ratio)),
            .latency = path.latency,
            .resources = path.resources,
            .after = {after}};
  }

  // Ends when what the part reads is on its device.
  int read(int input, int from, int to, const Box& both) {
    const int sender = device(input, from);
    if (sender == to) return forward(input, from);
    const auto [place, is_new] = sent_.try_emplace({input, from, to, both}, -1);
    if (is_new) {
      place->second = add(Pass::kForward,
                          message(sender, to, elements(both) * graph().at(input).element_bytes,
                                  forward(input, from)),
                          {StrategyTask::Kind::kSend, input, sender, to, {}});
    }
    return place->second;
  }

  void add_forward(int number) {
    std::vector<std::vector<int>> after(static_cast<std::size_t>(split(number).parts()));
    for (const int input : graph().at(number).inputs) {
      each_read(number, input, [&](int part, int from, const Box& both) {
        after[static_cast<std::size_t>(part)].push_back(
            read(input, from, device(number, part), both));
      });
    }
    for (int part = 0; part < split(number).parts(); ++part) {
      const int here = device(number, part);
      forward(number, part) =
          add(Pass::kForward,
              {.ticks = compute_time(number, part, graph().at(number).forward_macs),
               .resources = {here},
               .after = std::move(after[static_cast<std::size_t>(part)])},
              {StrategyTask::Kind::kForward, number, here, here, {}});
    }
  }

  void add_backward(int number) {
    std::vector<std::vector<int>> after(static_cast<std::size_t>(split(number).parts()));
    for (const int reader : problem_.readers[static_cast<std::size_t>(number)]) {
      each_read(reader, number, [&](int part, int from, const Box& both) {
        const int sender = device(reader, part);
        const int receiver = device(number, from);
        int last = backward(reader, part);
        if (sender != receiver) {
          last = add(
              Pass::kBackward,
              message(sender, receiver, elements(both) * graph().at(number).element_bytes, last),
              {StrategyTask::Kind::kSend, reader, sender, receiver, {}});
        }
        after[static_cast<std::size_t>(from)].push_back(last);
      });
    }
    for (int part = 0; part < split(number).parts(); ++part) {
      const int here = device(number, part);
      std::vector<int>& behind = after[static_cast<std::size_t>(part)];
      behind.push_back(forward(number, part));
      backward(number, part) =
          add(Pass::kBackward,
              {.ticks = compute_time(number, part, graph().at(number).backward_macs),
               .resources = {here},
               .after = std::move(behind)},
              {StrategyTask::Kind::kBackward, number, here, here, {}});
    }
  }

  void add_reductions(int number) {
    const GraphOperator& one = graph().at(number);
    if (one.parameter_bytes == 0) return;
    for (int channel = 0; channel < split(number).channels; ++channel) {
      std::vector<int> devices;
      std::vector<int> after;
      for (int part = channel; part < split(number).parts(); part += split(number).channels) {
        devices.push_back(device(number, part));
        after.push_back(backward(number, part));
      }
      std::ranges::sort(devices);
      devices.erase(std::ranges::unique(devices).begin(), devices.end());
      if (devices.size() < 2) continue;
      const Interval part = part_of(one.channels, split(number).channels, channel);
      add_ring(number, devices, share(one.parameter_bytes, part.size(), one.channels),
               std::move(after));
    }
  }

  void add_ring(int number, const std::vector<int>& devices, std::int64_t bytes,
                std::vector<int> after) {
    const auto ranks = static_cast<std::int64_t>(devices.size());
    const std::int64_t chunk = share(compressed(bytes, problem_.options.gradient_ratio), 1, ranks);
    TimelineTask task{.after = std::move(after)};
    std::int64_t slowest = 0;
    std::int64_t latency = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const ClusterPath& path = problem_.paths.at(devices[i], devices[(i + 1) % devices.size()]);
      slowest = std::max(slowest, send_ticks(path, chunk));
      latency = std::max(latency, path.latency);
      task.resources.insert(task.resources.end(), path.resources.begin(), path.resources.end());
    }
    std::ranges::sort(task.resources);
    // Neighbours that share a port send one after another.
    std::int64_t most = 1;
    for (const int port : task.resources) {
      most = std::max<std::int64_t>(most, std::ranges::count(task.resources, port));
    }
    task.resources.erase(std::ranges::unique(task.resources).begin(), task.resources.end());
    // Its rounds wait for one another, and the next tensor's for the last of them.
    task.ticks = 2 * (ranks - 1) * (latency + most * slowest);
    add(Pass::kBackward, std::move(task),
        {StrategyTask::Kind::kReduce, number, devices.front(), devices.front(), devices});
  }

  const Problem& problem_;
  const OperatorStrategy& strategy_;
  LoweredStrategy lowered_;
  std::vector<std::vector<int>> forward_;               // tasks, by operator and part
  std::vector<std::vector<int>> backward_;              // likewise
  std::map<std::tuple<int, int, int, Box>, int> sent_;  // by operator, part, receiver, elements
};

}  // namespace

Status check_cost_options(const CostOptions& options) {
  const auto wrong = [](const char* name, double value, const char* wanted) {
    return Status(Code::kInvalidArgument,
                  format("%s=%s (expected %s)", name, shortest(value).c_str(), wanted));
  };
  if (!(options.activation_ratio > 0 && options.activation_ratio <= 1)) {
    return wrong("activation ratio", options.activation_ratio, "above 0, at most 1");
  }
  if (!(options.gradient_ratio > 0 && options.gradient_ratio <= 1)) {
    return wrong("gradient ratio", options.gradient_ratio, "above 0, at most 1");
  }
  if (!(options.state_ratio >= 1 && options.state_ratio <= 64)) {
    return wrong("state ratio", options.state_ratio, "1 to 64");
  }
  return {};
}

SimulatedCost::SimulatedCost(const OperatorGraph& graph, const Cluster& cluster,
                             const CostOptions& options)
    : graph_(graph),
      cluster_(cluster),
      options_(options),
      readers_(graph.readers()),
      paths_(cluster) {
  for (const ClusterNode& node : cluster.nodes) {
    type_of_.insert(type_of_.end(), static_cast<std::size_t>(node.devices), node.type);
  }
}

Result<std::unique_ptr<SimulatedCost>> SimulatedCost::make(const OperatorGraph& graph,
                                                           const Cluster& cluster,
                                                           const CostOptions& options) {
  GW_TRY(check_graph(graph));
  GW_TRY(check_cluster(cluster));
  GW_TRY(check_cost_options(options));
  return std::unique_ptr<SimulatedCost>(new SimulatedCost(graph, cluster, options));
}

const ClusterPath& PathCache::at(int from, int to) {
  const auto [place, is_new] = paths_.try_emplace({from, to});
  if (is_new) place->second = cluster_.path(from, to);
  return place->second;
}

Result<LoweredStrategy> SimulatedCost::lower(const OperatorStrategy& strategy) {
  GW_TRY(check_strategy(graph_, cluster_, strategy));
  const Problem problem{graph_, cluster_, options_, readers_, type_of_, paths_};
  return Lowering(problem, strategy).run();
}

StrategyTime SimulatedCost::memory_of(const OperatorStrategy& strategy) const {
  StrategyTime time;
  time.memory.resize(type_of_.size());
  for (int number = 0; number < graph_.size(); ++number) {
    const GraphOperator& one = graph_.at(number);
    const OperatorSplit& split = strategy[static_cast<std::size_t>(number)];
    // A device with several parts of the same parameters has them once.
    std::vector<std::pair<int, int>> held;
    for (int part = 0; part < split.parts(); ++part) {
      const int device = split.devices[static_cast<std::size_t>(part)];
      const Box box = box_of(graph_, number, split, part);
      time.memory[static_cast<std::size_t>(device)] += elements(box) * one.element_bytes;
      held.emplace_back(device, part % split.channels);
    }
    std::ranges::sort(held);
    held.erase(std::ranges::unique(held).begin(), held.end());
    for (const auto& [device, channel] : held) {
      const Interval part = part_of(one.channels, split.channels, channel);
      const std::int64_t bytes = share(one.parameter_bytes, part.size(), one.channels);
      time.memory[static_cast<std::size_t>(device)] += compressed(bytes, options_.state_ratio);
    }
  }
  for (std::size_t device = 0; device < type_of_.size(); ++device) {
    const auto& type = cluster_.types[static_cast<std::size_t>(type_of_[device])];
    time.over += std::max<std::int64_t>(time.memory[device] - type.memory_bytes, 0);
  }
  return time;
}

Result<StrategyTime> SimulatedCost::time(const OperatorStrategy& strategy) {
  GW_ASSIGN(const LoweredStrategy lowered, lower(strategy));
  GW_ASSIGN(const Timeline timeline, run_timeline(lowered.tasks, cluster_.resources()));
  StrategyTime time = memory_of(strategy);
  time.ticks = timeline.makespan;
  return time;
}

}  // namespace gradwire
