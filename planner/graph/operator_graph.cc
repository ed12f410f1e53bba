#include "planner/graph/operator_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
constexpr double kMostOutput = 0x1p50;

Status bad_operator(const GraphOperator& one, const std::string& what) {
  return {Code::kInvalidArgument, format("operator '%s': %s", one.name.c_str(), what.c_str())};
}

Status check_sizes(const GraphOperator& one, std::int64_t samples) {
  struct Size {
    const char* name;
    std::int64_t value;
    std::int64_t least;
    int most = 40;  // a power of 2
  };
  const std::array sizes{Size{"macs forward", one.forward_macs, 0, 60},
                         Size{"macs backward", one.backward_macs, 0, 60},
                         Size{"parameter_bytes", one.parameter_bytes, 0},
                         Size{"positions", one.positions, 1},
                         Size{"channels", one.channels, 1},
                         Size{"element_bytes", one.element_bytes, 1}};
  double output = static_cast<double>(samples);
  for (const Size& size : sizes) {
    if (size.value < size.least || size.value > std::int64_t{1} << size.most) {
      return bad_operator(one, format("%s=%lld (expected %lld to 2^%d)", size.name,
                                      static_cast<long long>(size.value),
                                      static_cast<long long>(size.least), size.most));
    }
    if (size.least == 1) output *= static_cast<double>(size.value);
  }
  if (output <= kMostOutput) return {};
  return bad_operator(one, "an output of more than 2^50 bytes (expected less)");
}

Status check_inputs(const OperatorGraph& graph, int number) {
  const GraphOperator& one = graph.at(number);
  std::set<int> seen;
  for (const int input : one.inputs) {
    if (input < 0 || input >= number) {
      return bad_operator(
          one, format("reads operator %d (expected one before it, 0 to %d)", input, number - 1));
    }
    if (!seen.insert(input).second) {
      return bad_operator(one, "reads '" + graph.at(input).name + "' twice (expected once)");
    }
    if (!one.reads_all_channels && graph.at(input).channels != one.channels) {
      return bad_operator(
          one,
          format("reads its own channels of '%s', which has %lld (expected %lld)",
                 graph.at(input).name.c_str(), static_cast<long long>(graph.at(input).channels),
                 static_cast<long long>(one.channels)));
    }
  }
  if (!one.reads_all_channels && one.inputs.empty()) {
    return bad_operator(one, "reads its own channels of nothing (expected an input)");
  }
  return {};
}

}  // namespace

std::int64_t OperatorGraph::output_bytes(int number) const {
  const GraphOperator& one = at(number);
  return samples * one.positions * one.channels * one.element_bytes;
}

std::vector<std::vector<int>> OperatorGraph::readers() const {
  std::vector<std::vector<int>> all(operators.size());
  for (int number = 0; number < size(); ++number) {
    for (const int input : at(number).inputs) {
      all[static_cast<std::size_t>(input)].push_back(number);
    }
  }
  return all;
}

std::vector<std::vector<int>> OperatorGraph::groups() const {
  std::vector<std::vector<int>> all;
  std::map<std::string, std::size_t> known;
  for (int number = 0; number < size(); ++number) {
    const std::string& group = at(number).group;
    if (!group.empty()) {
      const auto [place, is_new] = known.try_emplace(group, all.size());
      if (!is_new) {
        all[place->second].push_back(number);
        continue;
      }
    }
    all.push_back({number});
  }
  return all;
}

Status check_graph(const OperatorGraph& graph) {
  if (graph.operators.empty()) {
    return {Code::kInvalidArgument, "graph without operators (expected at least one)"};
  }
  if (graph.samples < 1 || graph.samples > kMostSize) {
    return {Code::kInvalidArgument, format("graph of samples=%lld (expected 1 to 2^40)",
                                           static_cast<long long>(graph.samples))};
  }
  std::set<std::string> names;
  for (int number = 0; number < graph.size(); ++number) {
    GW_TRY(check_operator(graph, number));
    if (!names.insert(graph.at(number).name).second) {
      return bad_operator(graph.at(number), "the name stands twice (expected once)");
    }
  }
  return {};
}

Status check_operator(const OperatorGraph& graph, int number) {
  const GraphOperator& one = graph.at(number);
  if (one.name.empty()) {
    return {Code::kInvalidArgument, format("operator %d without a name (expected one)", number)};
  }
  GW_TRY(check_sizes(one, graph.samples));
  return check_inputs(graph, number);
}

}  // namespace gradwire
