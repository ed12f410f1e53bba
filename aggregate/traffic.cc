#include "aggregate/traffic.h"

#include <algorithm>
#include <array>
#include <utility>

#include "aggregate/plan/plan.h"
#include "base/text.h"
#include "collectives/schedules/selection.h"

namespace gradwire {
namespace {

// Stands for a tensor worth compressing, as where rules are judged.
constexpr Shape kLargeMatrix = Shape::matrix(1024, 1024);

constexpr std::array<TrafficClass, kTrafficClasses> kAll{
    TrafficClass::kGradients,           TrafficClass::kParameters, TrafficClass::kActivations,
    TrafficClass::kActivationGradients, TrafficClass::kOptimizer,  TrafficClass::kStatistics};

struct Refusal {
  std::string why;  // "" where there is none
  std::string remedy;
};

bool forgets_size(const TrafficCase& one) {
  return one.compressor.bound(kLargeMatrix).kind == ErrorBound::Kind::kNone;
}

// What decodes to something about as long as the tensor away from it.
bool is_coarse(const TrafficCase& one) {
  const ErrorBound bound = one.compressor.bound(kLargeMatrix);
  return one.compressor.traits().needs_error_feedback ||
         (bound.kind == ErrorBound::Kind::kVariance && bound.value >= 1);
}

Refusal judge_parameters(const TrafficCase& one) {
  const Traits traits = one.compressor.traits();
  const std::string remedy = "write cast:bf16, fp8 or qsgd:bits=8, or none";
  if (one.keys.feedback.rescale_lr) {
    return {"parameters are multiplied by no learning rate", "leave ef_rescale_lr out"};
  }
  if (traits.own_feedback || !traits.mean_is_average_of_own || forgets_size(one)) {
    return {
        "parameters must keep their magnitude, and this method sends a vote, a momentum or a sign",
        remedy};
  }
  const FeedbackKind kind = one.keys.feedback.kind;
  const bool differences = kind == FeedbackKind::kEf21 || kind == FeedbackKind::kEf21Sgdm;
  if (!differences && (traits.sparse || is_coarse(one))) {
    return {
        "parameters that are left out or sent this coarsely are lost for every step that uses "
        "them",
        remedy + ", or ef=ef21, which sends what changed"};
  }
  return {};
}

Refusal judge_activations(const TrafficCase& one) {
  const Traits traits = one.compressor.traits();
  if (one.keys.error_feedback) {
    return {"error feedback would add one sample's residual to another", "leave ef out"};
  }
  if (traits.own_feedback || traits.stateful) {
    return {"its state from step to step belongs to other samples",
            "write a method without state, such as cast:bf16, fp8 or qsgd:bits=8"};
  }
  if (!traits.mean_is_average_of_own || forgets_size(one)) {
    return {"it sends signs alone, and activations differ in size",
            "write cast:bf16, fp8 or qsgd:bits=8"};
  }
  return {};
}

Refusal judge_optimizer(const TrafficCase& one) {
  const Traits traits = one.compressor.traits();
  if (one.keys.feedback.rescale_lr) {
    return {"momenta are multiplied by no learning rate when they are kept",
            "leave ef_rescale_lr out"};
  }
  if (traits.own_feedback) {
    return {"it keeps a momentum and a residual of its own, and this tensor is a momentum already",
            "write topk:ratio=0.01,ef=ef14"};
  }
  if (!traits.mean_is_average_of_own) {
    return {"a vote's result has length 1 whatever the momentum's", "write signsgd:ef=ef14"};
  }
  return {};
}

Refusal judge_statistics(const TrafficCase& one) {
  if (one.compressor.traits().lossless) return {};
  return {"losses, norms and counts decide about the training and must be sent exactly",
          "write none or lossless"};
}

Refusal judge(TrafficClass traffic, const TrafficCase& one) {
  switch (traffic) {
    case TrafficClass::kGradients: break;
    case TrafficClass::kParameters: return judge_parameters(one);
    case TrafficClass::kActivations:
    case TrafficClass::kActivationGradients: return judge_activations(one);
    case TrafficClass::kOptimizer: return judge_optimizer(one);
    case TrafficClass::kStatistics: return judge_statistics(one);
  }
  return {};
}

std::string class_names() {
  std::string names;
  for (const TrafficClass traffic : kAll) {
    names += (names.empty() ? "" : ", ") + std::string(to_string(traffic));
  }
  return names;
}

Status refused(std::string_view entry, const std::string& why) {
  return {Code::kInvalidArgument, "traffic policy: '" + std::string(entry) + "': " + why};
}

struct Entry {
  TrafficClass traffic = TrafficClass::kGradients;
  TrafficRule rule;
};

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Entries stand between ; outside of [ ].
std::vector<std::string_view> entries_of(std::string_view text) {
  std::vector<std::string_view> entries;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ';' || depth > 0)) continue;
    const std::string_view entry = trimmed(text.substr(begin, i - begin));
    if (!entry.empty()) entries.push_back(entry);
    begin = i + 1;
  }
  return entries;
}

Result<Entry> read_entry(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return refused(text, "no '=' (expected CLASS=SPEC, CLASS/ALGORITHM=SPEC or CLASS=[RULES])");
  }
  std::string_view name = trimmed(text.substr(0, equals));
  Entry entry;
  if (const std::size_t slash = name.find('/'); slash != std::string_view::npos) {
    entry.rule.algorithm = trimmed(name.substr(slash + 1));
    name = trimmed(name.substr(0, slash));
    if (entry.rule.algorithm.empty()) return refused(text, "an algorithm is missing after '/'");
  }
  const auto named = [name](TrafficClass traffic) { return to_string(traffic) == name; };
  const auto* const known = std::find_if(kAll.begin(), kAll.end(), named);
  if (known == kAll.end()) {
    return refused(text, "'" + std::string(name) + "' is no class of traffic (expected " +
                             class_names() + ")");
  }
  entry.traffic = *known;
  std::string_view rules = trimmed(text.substr(equals + 1));
  if (!rules.empty() && rules.front() == '[') {
    if (rules.back() != ']') return refused(text, "'[' has no ']'");
    rules = trimmed(rules.substr(1, rules.size() - 2));
  }
  entry.rule.compressor = rules;
  return entry;
}

}  // namespace

std::string_view to_string(TrafficClass traffic) {
  switch (traffic) {
    case TrafficClass::kGradients: return "gradients";
    case TrafficClass::kParameters: return "parameters";
    case TrafficClass::kActivations: return "activations";
    case TrafficClass::kActivationGradients: return "activation_gradients";
    case TrafficClass::kOptimizer: return "optimizer";
    case TrafficClass::kStatistics: return "statistics";
  }
  return "?";
}

Status check_traffic(TrafficClass traffic, const TrafficCase& one, bool allow_unsafe,
                     std::vector<std::string>& warnings) {
  const Refusal refusal = judge(traffic, one);
  if (refusal.why.empty()) return {};
  const std::string why =
      "compressor '" + one.text + "' for " + std::string(to_string(traffic)) + ": " + refusal.why;
  if (!allow_unsafe || traffic == TrafficClass::kStatistics) {
    return {Code::kInvalidArgument, why + "; " + refusal.remedy};
  }
  warnings.push_back(why + "; run because unsafe pairs are allowed");
  return {};
}

bool names_class(std::string_view text, TrafficClass traffic) {
  for (const std::string_view part : entries_of(text)) {
    const auto entry = read_entry(part);
    if (entry.has_value() && entry.value().traffic == traffic) return true;
  }
  return false;
}

Result<TrafficPolicy> TrafficPolicy::parse(const Registry& registry, std::string_view text,
                                           bool allow_unsafe) {
  TrafficPolicy policy;
  policy.allow_unsafe_ = allow_unsafe;
  std::array<bool, kTrafficClasses> given{};
  for (const std::string_view part : entries_of(text)) {
    GW_ASSIGN(Entry entry, read_entry(part));
    const auto index = static_cast<std::size_t>(entry.traffic);
    if (std::exchange(given[index], true)) {
      return refused(part, std::string(to_string(entry.traffic)) + " are given twice");
    }
    policy.rules_[index] = std::move(entry.rule);
    const auto algorithm = resolve_algorithm(OpKind::kAllReduce, policy.rules_[index].algorithm);
    if (!algorithm.has_value()) return refused(part, std::string(algorithm.error().message()));
    const auto plan = read_plan(registry, policy.options(entry.traffic));
    if (!plan.has_value()) return refused(part, std::string(plan.error().message()));
  }
  return policy;
}

AggregatorOptions TrafficPolicy::options(TrafficClass traffic, AggregatorOptions base) const {
  const TrafficRule& rule = of(traffic);
  base.traffic = traffic;
  base.compressor = rule.compressor;
  base.algorithm = rule.algorithm;
  base.allow_unsafe = allow_unsafe_;
  return base;
}

}  // namespace gradwire
