#include "aggregate/plan/keys.h"

#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "compress/spec_reader.h"

namespace gradwire {
namespace {

constexpr std::array<std::string_view, 14> kKeys{
    "ef",      "ef_scale",   "ef_storage", "ef_eta",    "ef_beta",  "ef_reset",     "ef_rescale_lr",
    "combine", "intra_node", "inter_node", "min_elems", "dense_1d", "warmup_steps", "seed"};
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Result<Combine> read_combine(const SpecReader& reader) {
  GW_ASSIGN(const std::string text,
            reader.choice("combine", "auto", {"auto", "sum", "gather", "sra", "oktopk"}));
  if (text == "sum") return Combine::kSum;
  if (text == "gather") return Combine::kGather;
  if (text == "sra") return Combine::kSra;
  if (text == "oktopk") return Combine::kOkTopk;
  return Combine::kAuto;
}

// True when the key has the second of its two values; the first is its default.
Result<bool> read_switch(const SpecReader& reader, std::string_view key, const std::string& first,
                         const std::string& second) {
  const auto chosen = reader.choice(key, first, {first, second});
  if (!chosen.has_value()) return chosen.error();
  return chosen.value() == second;
}

constexpr FeedbackKind kFeedbackKinds[] = {FeedbackKind::kNone, FeedbackKind::kEf14,
                                           FeedbackKind::kEf21, FeedbackKind::kEf21Sgdm,
                                           FeedbackKind::kLoco};

Result<FeedbackKind> read_kind(const SpecReader& reader) {
  std::vector<std::string> names;
  for (const FeedbackKind kind : kFeedbackKinds) names.emplace_back(to_string(kind));
  GW_ASSIGN(const std::string text, reader.choice("ef", "none", names));
  for (const FeedbackKind kind : kFeedbackKinds) {
    if (text == to_string(kind)) return kind;
  }
  return FeedbackKind::kNone;
}

Result<ResidualStorage> read_storage(const SpecReader& reader, FeedbackKind kind) {
  const char* usual = kind == FeedbackKind::kLoco ? "int8" : "fp32";
  GW_ASSIGN(const std::string text, reader.choice("ef_storage", usual, {"fp32", "bf16", "int8"}));
  if (text == "bf16") return ResidualStorage::kBf16;
  return text == "int8" ? ResidualStorage::kInt8 : ResidualStorage::kFull;
}

// Refuses keys that the selected error feedback does not read: they would silently do nothing.
Status check_feedback_keys(const Spec& spec, FeedbackKind kind) {
  const bool residual = kind == FeedbackKind::kEf14 || kind == FeedbackKind::kLoco;
  const bool loco = kind == FeedbackKind::kLoco;
  const struct {
    std::string_view key;
    bool used;
    std::string_view kinds;
  } rules[] = {{"ef_storage", residual, "ef14 or ef=loco"},
               {"ef_rescale_lr", residual || kind == FeedbackKind::kNone, "ef14 or ef=loco"},
               {"ef_eta", kind == FeedbackKind::kEf21Sgdm, "ef21_sgdm"},
               {"ef_beta", loco, "loco"},
               {"ef_reset", loco, "loco"}};
  const SpecReader reader(spec);
  for (const auto& rule : rules) {
    if (!reader.has(rule.key) || rule.used) continue;
    return {Code::kInvalidArgument,
            "compressor '" + spec.name + "': key '" + std::string(rule.key) +
                "' belongs to ef=" + std::string(rule.kinds) +
                ", not to ef=" + std::string(to_string(kind)) + "; leave it out"};
  }
  return {};
}

Result<FeedbackOptions> read_feedback(const Spec& spec) {
  const SpecReader reader(spec);
  FeedbackOptions feedback;
  GW_ASSIGN(feedback.kind, read_kind(reader));
  GW_TRY(check_feedback_keys(spec, feedback.kind));
  GW_ASSIGN(feedback.storage, read_storage(reader, feedback.kind));
  GW_ASSIGN(feedback.eta, reader.number("ef_eta", feedback.eta, 0, 1));
  GW_ASSIGN(feedback.beta, reader.number_from_zero("ef_beta", feedback.beta, 0.999));
  GW_ASSIGN(feedback.reset, reader.integer("ef_reset", feedback.reset, 0, kMost));
  GW_ASSIGN(feedback.rescale_lr, reader.boolean("ef_rescale_lr", false));
  return feedback;
}

Result<Between> read_between(const SpecReader& reader, const std::string& inner) {
  GW_ASSIGN(const std::string text, reader.choice("inter_node", "messages", {"messages", "nccl"}));
  if (inner.empty() && reader.has("inter_node")) {
    return Status(Code::kInvalidArgument,
                  "key 'inter_node' (got '" + text +
                      "') needs two levels; add intra_node=none, or leave it out");
  }
  return text == "nccl" ? Between::kNccl : Between::kMessages;
}

Result<AggregatorKeys> read_keys(const Spec& spec) {
  const SpecReader reader(spec);
  AggregatorKeys keys;
  GW_ASSIGN(keys.feedback, read_feedback(spec));
  keys.error_feedback = keys.feedback.kind != FeedbackKind::kNone;
  GW_ASSIGN(keys.scale_feedback, read_switch(reader, "ef_scale", "auto", "none"));
  keys.scale_feedback = !keys.scale_feedback;
  GW_ASSIGN(keys.combine, read_combine(reader));
  for (const auto& [key, value] : spec.params) {
    if (key == "intra_node") keys.inner = value;
  }
  GW_ASSIGN(keys.between, read_between(reader, keys.inner));
  GW_ASSIGN(keys.min_elems, reader.integer("min_elems", keys.min_elems, 0, kMost));
  GW_ASSIGN(keys.dense_1d, reader.boolean("dense_1d", keys.dense_1d));
  GW_ASSIGN(keys.warmup_steps, reader.integer("warmup_steps", keys.warmup_steps, 0, kMost));
  if (reader.has("seed")) {
    GW_ASSIGN(const std::int64_t seed, reader.integer("seed", 0, 0, kMost));
    keys.seed = static_cast<std::uint64_t>(seed);
  }
  return keys;
}

}  // namespace

std::string_view to_string(Combine combine) {
  switch (combine) {
    case Combine::kAuto: return "auto";
    case Combine::kSum: return "sum";
    case Combine::kGather: return "gather";
    case Combine::kSra: return "sra";
    case Combine::kOkTopk: return "oktopk";
  }
  return "?";
}

bool is_aggregator_key(std::string_view key) {
  for (const std::string_view known : kKeys) {
    if (key == known) return true;
  }
  return false;
}

std::string_view aggregator_key_list() {
  return "ef, ef_scale, combine, intra_node, inter_node, min_elems, dense_1d, warmup_steps, seed, "
         "ef_storage, ef_eta, ef_beta, ef_reset, ef_rescale_lr";
}

std::vector<std::string> aggregator_key_names() { return {kKeys.begin(), kKeys.end()}; }

Result<SplitSpec> split_spec(SpecChain chain) {
  SplitSpec split;
  GW_ASSIGN(split.old_keys, rename_old_keys(chain));
  Spec own{chain.front().name, {}};
  for (std::size_t stage = 0; stage < chain.size(); ++stage) {
    Spec rest{chain[stage].name, {}};
    for (const auto& param : chain[stage].params) {
      if (!is_aggregator_key(param.first)) {
        rest.params.push_back(param);
      } else if (stage == 0) {
        own.params.push_back(param);
      } else {
        return Status(Code::kInvalidArgument, "compressor '" + to_string(chain) + "': key '" +
                                                  param.first + "' belongs into the first stage");
      }
    }
    split.method.push_back(std::move(rest));
  }
  GW_ASSIGN(split.keys, read_keys(own));
  return split;
}

}  // namespace gradwire
