#include "apps/plan/plan_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "adapters/trainer/compressor_check.h"
#include "apps/whole_file.h"
#include "base/nearest.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::array<std::string_view, 16> kTrainKeys{
    "model",     "hidden",        "width",     "layers",     "heads",     "tied",
    "context",   "parallel",      "batch",     "accumulate", "recompute", "compressor",
    "precision", "no-main-grads", "optimizer", "momentum"};
constexpr std::array<std::string_view, 4> kNeeded{"model", "parallel", "batch", "accumulate"};
constexpr std::array<std::string_view, 5> kPredictedKeys{"mesh", "step_seconds", "memory_bytes",
                                                         "rates", "stale"};
constexpr std::array<std::string_view, 4> kProfileKeys{"file", "host", "processor", "cores"};

template <typename Names>
bool has(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// "FILE:LINE: WHAT".
class PlanReader {
 public:
  PlanReader(const std::string& path, Flags& flags) : path_(path), flags_(flags) {
    lines_.path = path;
  }

  Result<PlanLines> read() {
    GW_ASSIGN(const std::string text, read_whole_file(path_));
    toml::table table;
    try {
      table = toml::parse(text, path_);
    } catch (const toml::parse_error& error) {
      return at(static_cast<int>(error.source().begin.line),
                "not TOML (" + std::string(error.description()) + ")");
    }
    GW_TRY(check_version(table));
    for (const auto& [key, node] : table) {
      const std::string_view name = key.str();
      if (name == "version") continue;
      if (name == "profile") {
        GW_TRY(read_profiles(node));
        continue;
      }
      if (name != "train" && name != "predicted") {
        return at(node, "unknown key '" + std::string(name) + "'" +
                            did_you_mean(name, {"version", "train", "predicted", "profile"}) +
                            " (expected version, [train], [predicted] or [[profile]])");
      }
      if (!node.is_table()) return at(node, std::string(name) + " must be a table");
    }
    if (const auto* predicted = table["predicted"].as_table()) {
      for (const auto& [key, node] : *predicted) {
        if (!has(kPredictedKeys, key.str())) return unknown(key.str(), node, kPredictedKeys);
        GW_TRY(check_predicted(std::string(key.str()), node));
      }
    }
    const auto* train = table["train"].as_table();
    if (train == nullptr)
      return at(1, "no table [train] (expected what gradwire plan --write wrote)");
    GW_TRY(apply(*train));
    return std::move(lines_);
  }

 private:
  Status at(int line, const std::string& what) const {
    return {Code::kInvalidArgument, path_ + ":" + std::to_string(line) + ": " + what};
  }
  Status at(const toml::node& node, const std::string& what) const {
    return at(static_cast<int>(node.source().begin.line), what);
  }
  template <typename Names>
  Status unknown(std::string_view key, const toml::node& node, const Names& expected) const {
    const std::vector<std::string> names(expected.begin(), expected.end());
    return at(node, "unknown key '" + std::string(key) + "'" + did_you_mean(key, names) +
                        " (expected " + joined(names) + ")");
  }

  Status check_version(const toml::table& table) const {
    const auto* node = table.get("version");
    if (node == nullptr) return at(1, "no version (expected version = 1)");
    if (node->is_integer() && node->as_integer()->get() == kVersion) return {};
    return at(*node, "version=" + text_of(*node).value_or("a table or list") +
                         " is of another gradwire (expected version = 1)");
  }

  // Nothing is done with it, but an edit that makes it nonsense was not meant.
  Status check_predicted(const std::string& key, const toml::node& node) const {
    const bool is_text = key == "mesh" || key == "rates";
    if (is_text && node.is_string()) return {};
    if (key == "stale") {
      if (node.is_boolean()) return {};
      return at(node,
                "stale=" + text_of(node).value_or("a table or list") + " (expected true or false)");
    }
    const auto number = node.value<double>();
    if (!is_text && !node.is_boolean() && number && std::isfinite(*number) && *number >= 0) {
      return {};
    }
    return at(node, key + "=" + text_of(node).value_or("a table or list") + " (expected " +
                        (is_text ? "a text)" : "a number of at least 0)"));
  }

  Status read_profiles(const toml::node& node) {
    const auto* all = node.as_array();
    if (all == nullptr) return at(node, "profile must be an array of tables, [[profile]]");
    for (const toml::node& one : *all) {
      if (!one.is_table()) return at(one, "a profile must be a table, [[profile]]");
      GW_TRY(read_profile(*one.as_table()));
    }
    return {};
  }

  Status read_profile(const toml::table& table) {
    PlanProfile read{.of = {}, .line = static_cast<int>(table.source().begin.line)};
    for (const std::string_view needed : kProfileKeys) {
      if (table.contains(needed)) continue;
      return at(table, "[[profile]] has no " + std::string(needed) + " (expected one)");
    }
    ProfileConditions& on = read.of.conditions;
    for (const auto& [key, node] : table) {
      const std::string_view name = key.str();
      if (!has(kProfileKeys, name)) return unknown(name, node, kProfileKeys);
      const bool is_text = name != "cores";
      const auto cores = node.is_integer() ? node.value<int>() : std::nullopt;
      if (is_text ? !node.is_string() : !cores || *cores < 1) {
        return at(node, std::string(name) + "=" + text_of(node).value_or("a table or list") +
                            " (expected " + (is_text ? "a text)" : "a whole number, from 1)"));
      }
      if (name == "cores") on.cores = *cores;
      if (name == "file") read.of.file = node.as_string()->get();
      if (name == "host") on.host = node.as_string()->get();
      if (name == "processor") on.processor = node.as_string()->get();
    }
    lines_.profiles.push_back(std::move(read));
    return {};
  }

  // In the file's order.
  Status apply(const toml::table& train) {
    std::vector<std::pair<std::string, const toml::node*>> entries;
    for (const auto& [key, node] : train) {
      if (!has(kTrainKeys, key.str())) return unknown(key.str(), node, kTrainKeys);
      entries.emplace_back(key.str(), &node);
    }
    std::ranges::sort(entries, {},
                      [](const auto& entry) { return entry.second->source().begin.line; });
    for (const std::string_view needed : kNeeded) {
      if (!train.contains(needed)) {
        return at(train, "[train] has no " + std::string(needed) + " (expected one)");
      }
    }
    for (const auto& [key, node] : entries) {
      if (flags_.given(key)) {
        return at(*node,
                  "--" + key + " stands beside the plan that has it (expected one of the two)");
      }
    }
    for (const auto& [key, node] : entries) {
      const auto value = text_of(*node);
      if (!value) {
        return at(*node, key + " is a table or list (expected a text, a number, true or false)");
      }
      if (const Status set = flags_.set(key, *value); !set.ok()) {
        return at(*node, std::string(set.message()));
      }
      lines_.lines[key] = static_cast<int>(node->source().begin.line);
      if (key != "compressor") continue;
      if (const Status known = check_compressor(*value); !known.ok()) {
        return at(*node, std::string(known.message()));
      }
    }
    return {};
  }

  static std::optional<std::string> text_of(const toml::node& node) {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* number = node.as_integer()) return std::to_string(number->get());
    if (const auto* number = node.as_floating_point()) return shortest(number->get());
    if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
    return std::nullopt;
  }

  const std::string& path_;
  Flags& flags_;
  PlanLines lines_;
};

}  // namespace

std::string quoted_toml(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += std::string("\\") + c;
    } else if (code < 0x20 || code == 0x7f) {
      quoted += format("\\u%04X", static_cast<unsigned>(code));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string plan_file_text(const MeshPlan& plan) {
  std::string text =
      format("# Written by gradwire plan; gradwire train --plan runs it.\nversion = %lld\n",
             static_cast<long long>(kVersion));
  text += "\n[train]\n";
  for (const auto& [name, value] : plan.train) text += name + " = " + value + "\n";
  text += "\n[predicted]\nmesh = " + quoted_toml(plan.mesh) + "\n";
  text += "step_seconds = " + shortest(plan.step_seconds) + "\n";
  text += format("memory_bytes = %lld\n", static_cast<long long>(plan.memory_bytes));
  text += "rates = " + quoted_toml(plan.rates) + "\n";
  if (plan.stale) text += "stale = true  # no flush: weights are older than their gradients\n";
  for (const UsedProfile& one : plan.profiles) {
    text += "\n[[profile]]  # train --plan refuses another machine\n";
    text += "file = " + quoted_toml(one.file) + "\n";
    text += "host = " + quoted_toml(one.conditions.host) + "\n";
    text += "processor = " + quoted_toml(one.conditions.processor) + "\n";
    text += format("cores = %d\n", one.conditions.cores);
  }
  return text;
}

Status PlanLines::placed(std::initializer_list<std::string_view> flags,
                         const Status& status) const {
  if (status.ok()) return status;
  for (const std::string_view flag : flags) {
    const auto line = lines.find(flag);
    if (line != lines.end()) return status.with_context(path + ":" + std::to_string(line->second));
  }
  return status;
}

Status PlanLines::check_machine(const ProfileConditions& here) const {
  Status first;
  for (const PlanProfile& one : profiles) {
    const Profile profile{.conditions = one.of.conditions};
    const Status same = check_same_machine(profile, one.of.file, here);
    if (same.ok()) return {};
    if (first.ok()) first = same.with_context(path + ":" + std::to_string(one.line));
  }
  if (first.ok()) return {};
  return {first.code(), std::string(first.message()) +
                            ", plan with it by gradwire plan --cluster, or train where it is of"};
}

Result<PlanLines> apply_plan_file(const std::string& path, Flags& flags) {
  return PlanReader(path, flags).read();
}

}  // namespace gradwire
