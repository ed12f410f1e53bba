#include "planner/graph/graph_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "planner/graph/lined_json.h"

namespace gradwire {
namespace {

using Kind = LinedJson::Kind;

// What a file is read with: its name stands in every error.
class GraphReader {
 public:
  explicit GraphReader(std::string name) : name_(std::move(name)) {}

  Result<OperatorGraph> read(const LinedJson& root) {
    OperatorGraph graph;
    if (root.kind != Kind::kObject) return bad(root, "expected an object with \"operators\"");
    const LinedJson* operators = nullptr;
    for (const auto& [key, value] : root.members) {
      if (key == "name") {
        GW_TRY(text(value, key, graph.name));
      } else if (key == "samples") {
        GW_TRY(integer(value, key, graph.samples));
      } else if (key == "operators" && value.kind == Kind::kArray) {
        operators = &value;
      } else if (key == "operators") {
        return bad(value, "operators must be an array");
      } else {
        return bad(value, "unknown key '" + key + "' (expected name, samples or operators)");
      }
    }
    if (operators == nullptr) return bad(root, "no \"operators\" (expected an array of them)");
    for (const LinedJson& one : operators->elements) {
      GW_TRY(add(one, graph));
      // Each as it comes, so that the error is of its line.
      if (Status status = check_operator(graph, graph.size() - 1); !status.ok()) {
        return bad(one, std::string(status.message()));
      }
    }
    if (Status status = check_graph(graph); !status.ok()) {  // of the whole
      return bad(*operators, std::string(status.message()));
    }
    return graph;
  }

 private:
  Status bad(const LinedJson& at, const std::string& what) const {
    return {Code::kInvalidArgument, format("%s:%d: %s", name_.c_str(), at.line, what.c_str())};
  }
  Status text(const LinedJson& value, const std::string& key, std::string& out) const {
    if (value.kind != Kind::kText) return bad(value, key + " must be a string");
    out = value.text;
    return {};
  }
  Status integer(const LinedJson& value, const std::string& key, std::int64_t& out) const {
    if (value.kind != Kind::kInteger) return bad(value, key + " must be a whole number");
    out = value.integer;
    return {};
  }

  Status add(const LinedJson& value, OperatorGraph& graph) {
    if (value.kind != Kind::kObject) return bad(value, "an operator must be an object");
    GraphOperator one;
    for (const auto& [key, member] : value.members) GW_TRY(set(one, key, member));
    if (!places_.try_emplace(one.name, graph.size()).second) {
      return bad(value, "operator '" + one.name + "' stands twice (expected once)");
    }
    graph.operators.push_back(std::move(one));
    return {};
  }

  Status set(GraphOperator& one, const std::string& key, const LinedJson& value) {
    if (key == "name") return text(value, key, one.name);
    if (key == "group") return text(value, key, one.group);
    if (key == "parameter_bytes") return integer(value, key, one.parameter_bytes);
    if (key == "positions") return integer(value, key, one.positions);
    if (key == "channels") return integer(value, key, one.channels);
    if (key == "element_bytes") return integer(value, key, one.element_bytes);
    if (key == "macs") return set_macs(one, value);
    if (key == "splits") return set_splits(one, value);
    if (key == "inputs") return set_inputs(one, value);
    if (key == "layer") {
      constexpr std::int64_t kMostLayer = 1 << 20;
      std::int64_t layer = 0;
      GW_TRY(integer(value, key, layer));
      if (layer < 0 || layer > kMostLayer) {
        return bad(value, format("layer=%lld (expected 0 to 2^20)", static_cast<long long>(layer)));
      }
      one.layer = static_cast<int>(layer);
      return {};
    }
    if (key == "reads") {
      std::string reads;
      GW_TRY(text(value, key, reads));
      if (reads != "all" && reads != "own") {
        return bad(value, "reads '" + reads + "' (expected all or own)");
      }
      one.reads_all_channels = reads == "all";
      return {};
    }
    return bad(value, "unknown key '" + key +
                          "' (expected name, group, layer, macs, parameter_bytes, positions, "
                          "channels, element_bytes, splits, reads or inputs)");
  }

  Status set_macs(GraphOperator& one, const LinedJson& value) const {
    if (value.kind != Kind::kArray || value.elements.size() != 2) {
      return bad(value, "macs must be two whole numbers, forward and backward");
    }
    GW_TRY(integer(value.elements[0], "macs", one.forward_macs));
    return integer(value.elements[1], "macs", one.backward_macs);
  }

  Status set_splits(GraphOperator& one, const LinedJson& value) const {
    if (value.kind != Kind::kArray) return bad(value, "splits must be an array of strings");
    for (const LinedJson& element : value.elements) {
      std::string by;
      GW_TRY(text(element, "splits", by));
      if (by == "channels") {
        one.splits_channels = true;
      } else if (by == "positions") {
        one.splits_positions = true;
      } else if (by == "inside") {
        one.splits_inside = true;
      } else {
        return bad(element, "splits by '" + by + "' (expected channels, positions or inside)");
      }
    }
    return {};
  }

  Status set_inputs(GraphOperator& one, const LinedJson& value) const {
    if (value.kind != Kind::kArray) return bad(value, "inputs must be an array of names");
    for (const LinedJson& element : value.elements) {
      std::string input;
      GW_TRY(text(element, "inputs", input));
      const auto place = places_.find(input);
      if (place == places_.end()) {
        return bad(element, "reads '" + input + "' (expected an operator that stands before)");
      }
      one.inputs.push_back(place->second);
    }
    return {};
  }

  std::string name_;
  std::map<std::string, int> places_;
};

nlohmann::ordered_json operator_json(const OperatorGraph& graph, const GraphOperator& one) {
  nlohmann::ordered_json json;
  json["name"] = one.name;
  if (!one.group.empty()) json["group"] = one.group;
  if (one.layer >= 0) json["layer"] = one.layer;
  json["macs"] = {one.forward_macs, one.backward_macs};
  if (one.parameter_bytes > 0) json["parameter_bytes"] = one.parameter_bytes;
  if (one.positions > 1) json["positions"] = one.positions;
  json["channels"] = one.channels;
  if (one.element_bytes != 4) json["element_bytes"] = one.element_bytes;
  std::vector<std::string> splits;
  if (one.splits_channels) splits.emplace_back("channels");
  if (one.splits_positions) splits.emplace_back("positions");
  if (one.splits_inside) splits.emplace_back("inside");
  if (!splits.empty()) json["splits"] = splits;
  if (!one.reads_all_channels) json["reads"] = "own";
  std::vector<std::string> inputs;
  for (const int input : one.inputs) inputs.push_back(graph.at(input).name);
  if (!inputs.empty()) json["inputs"] = inputs;
  return json;
}

}  // namespace

Result<OperatorGraph> parse_graph(const std::string& text, const std::string& name) {
  GW_ASSIGN(const LinedJson root, parse_lined_json(text, name));
  return GraphReader(name).read(root);
}

std::string graph_text(const OperatorGraph& graph) {
  std::string text =
      "{\"name\": " + nlohmann::json(graph.name).dump() +
      format(", \"samples\": %lld, \"operators\": [\n", static_cast<long long>(graph.samples));
  for (const GraphOperator& one : graph.operators) {
    text += "  " + operator_json(graph, one).dump();
    text += &one == &graph.operators.back() ? "\n" : ",\n";
  }
  return text + "]}\n";
}

}  // namespace gradwire
