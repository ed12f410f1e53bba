#include "adapters/trainer/optimizers/optimizer_spec.h"

#include <algorithm>
#include <vector>

#include "base/nearest.h"
#include "base/text.h"
#include "gradwire/registry.h"

namespace gradwire {
namespace {

constexpr double kDemoDecay = 0.999;

// A key of some optimizers: a number of theirs, or a count of a method's.
struct Key {
  const char* name;
  double OptimizerOptions::*number;
  std::int64_t MethodOptions::*count;
  double MethodOptions::*of_method;
  std::vector<std::string_view> owners;
};

const std::vector<std::string_view> kAdams{"adamw",         "lamb",        "onebit_adam",
                                           "zero_one_adam", "onebit_lamb", "diloco"};

std::vector<Key> all_keys() {
  using O = OptimizerOptions;
  using M = MethodOptions;
  return {{"beta1", &O::beta1, nullptr, nullptr, kAdams},
          {"beta2", &O::beta2, nullptr, nullptr, kAdams},
          {"epsilon", &O::epsilon, nullptr, nullptr, kAdams},
          {"decay", &O::momentum, nullptr, nullptr, {"demo"}},
          {"outer_momentum", &O::momentum, nullptr, nullptr, {"diloco"}},
          {"outer_lr", nullptr, nullptr, &M::outer_lr, {"diloco"}},
          {"inner_steps", nullptr, &M::inner_steps, nullptr, {"diloco"}},
          {"freeze", nullptr, &M::freeze, nullptr, {"onebit_adam", "onebit_lamb", "zero_one_adam"}},
          {"variance_doubles", nullptr, &M::variance_doubles, nullptr, {"zero_one_adam"}},
          {"local_doubles", nullptr, &M::local_doubles, nullptr, {"zero_one_adam"}},
          {"local_most", nullptr, &M::local_most, nullptr, {"zero_one_adam"}},
          {"chunk", nullptr, &M::chunk, nullptr, {"demo"}},
          {"topk", nullptr, &M::topk, nullptr, {"demo"}}};
}

bool has(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Status refuse(const std::string& optimizer, const std::string& what) {
  return Status(Code::kInvalidArgument, "optimizer " + optimizer + ": " + what);
}

std::string_view main_key(std::string_view optimizer) {
  if (optimizer == "diloco") return "inner_steps";
  return optimizer.starts_with("onebit_") || optimizer == "zero_one_adam" ? "freeze" : "";
}

Status set(const Spec& spec, const std::string& key, const std::string& value,
           MethodOptions& options) {
  std::string known;
  std::vector<std::string> names;
  for (const Key& each : all_keys()) {
    if (!has(each.owners, spec.name)) continue;
    known += (known.empty() ? "" : ", ") + std::string(each.name);
    names.emplace_back(each.name);
    if (key != each.name) continue;
    const std::optional<double> number = to_double(value);
    const std::optional<std::int64_t> count = to_int(value);
    if (each.count != nullptr ? !count.has_value() : !number.has_value()) {
      return refuse(spec.name, key + "=" + value + " (expected a " +
                                   (each.count != nullptr ? "whole " : "") + "number)");
    }
    if (each.number != nullptr) options.optimizer.*each.number = *number;
    if (each.of_method != nullptr) options.*each.of_method = *number;
    if (each.count != nullptr) options.*each.count = *count;
    return {};
  }
  return refuse(spec.name, "unknown key '" + key + "'" + did_you_mean(key, names) + " (expected " +
                               (known.empty() ? "none" : known) + ")");
}

}  // namespace

Result<OptimizerChoice> parse_optimizer(std::string_view text) {
  GW_ASSIGN(const SpecChain chain, parse_spec(text));
  if (chain.size() != 1) {
    return Status(Code::kInvalidArgument,
                  "optimizer '" + std::string(text) + "' (expected one stage, without '|')");
  }
  const Spec& spec = chain[0];
  const std::vector<std::string_view> plain{"sgd", "nesterov", "adamw", "lamb"};
  const std::vector<std::string>& methods = method_names();
  const bool is_method = std::find(methods.begin(), methods.end(), spec.name) != methods.end();
  if (!is_method && !has(plain, spec.name)) {
    std::vector<std::string> known(plain.begin(), plain.end());
    known.insert(known.end(), methods.begin(), methods.end());
    return Status(Code::kInvalidArgument,
                  "unknown optimizer '" + spec.name + "'" + did_you_mean(spec.name, known) +
                      " (expected sgd, nesterov, adamw, lamb, onebit_adam, zero_one_adam, "
                      "onebit_lamb, demo or diloco)");
  }
  MethodOptions options;
  options.name = spec.name;
  if (spec.name == "demo") options.optimizer.momentum = kDemoDecay;
  for (const auto& [key, value] : spec.params) {
    const std::string name = key.empty() ? std::string(main_key(spec.name)) : key;
    GW_TRY(set(spec, name, value, options));
  }
  OptimizerChoice choice;
  choice.optimizer = options.optimizer;
  choice.optimizer.name = spec.name;
  if (is_method) choice.method = std::move(options);
  return choice;
}

}  // namespace gradwire
