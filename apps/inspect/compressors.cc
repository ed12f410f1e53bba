// `gradwire inspect compressors`: the registry as a reader sees it.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "apps/flag_values.h"
#include "apps/flags.h"
#include "apps/inspect/inspect.h"
#include "base/nearest.h"
#include "base/text.h"
#include "gradwire/registry.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

constexpr Shape kExample = Shape::matrix(1000, 1000);

constexpr int kExampleRanks = 4;  // payloads that hold sums may grow with the number of ranks

const char* exchange_name(Exchange exchange) {
  switch (exchange) {
    case Exchange::kAllReduceSum: return "all-reduce sum";
    case Exchange::kAllReduceMax: return "all-reduce max";
    case Exchange::kAllGather: break;
  }
  return "all-gather";
}

// "all-reduce max of f32, then all-reduce sum of i32"; a payload that is gathered has no type, and
// rounds that are alike are named once.
std::string exchange_text(const Compressor& compressor) {
  std::string text;
  std::string last;
  for (int round = 0; round < compressor.traits().rounds; ++round) {
    const RoundKind kind = compressor.round_kind(round, DType::kF32, kExampleRanks);
    std::string word = exchange_name(kind.exchange);
    if (kind.reduces()) word += " of " + std::string(to_string(kind.payload));
    if (word == last) continue;
    text += (text.empty() ? "" : ", then ") + word;
    last = std::move(word);
  }
  return text;
}

Json claims_of(const Compressor& compressor) {
  const Traits traits = compressor.traits();
  Json claims;
  claims["exchange"] = exchange_text(compressor);
  claims["rounds"] = traits.rounds;
  claims["elementwise"] = traits.elementwise;
  claims["fixed_payload"] = traits.fixed_payload;
  claims["sparse"] = traits.sparse;
  claims["lossless"] = traits.lossless;
  claims["own_feedback"] = traits.own_feedback;
  claims["unbiased"] = traits.unbiased;
  claims["needs_error_feedback"] = traits.needs_error_feedback;
  claims["mean_is_average_of_own"] = traits.mean_is_average_of_own;
  claims["stateful"] = traits.stateful;
  const ErrorBound bound = compressor.bound(kExample);
  claims["bound"] = bound.kind == ErrorBound::Kind::kContraction ? "contraction"
                    : bound.kind == ErrorBound::Kind::kVariance  ? "variance"
                                                                 : "none";
  if (bound.kind == ErrorBound::Kind::kNone) return claims;
  claims["bound_value"] = bound.value;
  claims["bound_scale"] = bound.scale;
  claims["bound_over_ranks"] = bound.over_ranks;
  return claims;
}

// At most, over all rounds, for fp32 elements of the example matrix on the example's ranks.
double bits_per_element(const Compressor& compressor) {
  std::size_t bytes = 0;
  for (int round = 0; round < compressor.traits().rounds; ++round) {
    bytes += compressor.max_payload_bytes(kExample, DType::kF32, round, kExampleRanks);
  }
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(kExample.elems());
}

// Methods that want a key which has no default are shown with this one.
constexpr std::pair<std::string_view, std::string_view> kExamples[] = {
    {"cast", "cast:bf16"},
    {"topk", "topk:ratio=0.01"},
    {"threshold", "threshold:tau=0.01"},
    {"randomk", "randomk:ratio=0.01"},
    {"cltk", "cltk:ratio=0.01"},
    {"qsgd", "qsgd:bits=4"},
    {"powersgd", "powersgd:rank=4"},
};

Result<std::unique_ptr<Compressor>> make_example(const Registry& registry,
                                                 const std::string& name) {
  auto plain = registry.make(name);
  if (plain.has_value()) return plain;
  for (const auto& [method, spec] : kExamples) {
    if (method == name) return registry.make(spec);
  }
  return plain;
}

Json describe(const Registry& registry, const Registry::Method& method) {
  Json row;
  row["kind"] = "compressor";
  row["name"] = method.name;
  row["help"] = method.help;
  row["main_key"] = method.main_key;
  row["keys"] = Json::array();
  for (const SpecKey& key : method.keys) {
    row["keys"].push_back(
        {{"name", key.name}, {"default", key.default_value}, {"meaning", key.meaning}});
  }
  const auto made = make_example(registry, method.name);
  if (!made.has_value()) {  // no defaults for all of its keys
    row["needs"] = std::string(made.error().message());
    return row;
  }
  const Compressor& compressor = *made.value();
  row["canonical"] = compressor.spec();
  row["claims"] = claims_of(compressor);
  row["bits_per_element"] = bits_per_element(compressor);
  return row;
}

struct FeedbackText {
  const char* name;
  const char* help;
  const char* keys;
};

// The values of the key ef, of every compressor. They send what the compressor sends.
constexpr FeedbackText kFeedbacks[] = {
    {"ef14", "the residual (gradient minus what was sent) is added to the next gradient",
     "ef_storage, ef_rescale_lr"},
    {"ef21", "the difference between the gradient and a running estimate is sent", ""},
    {"ef21_sgdm", "ef21 applied to a moving average of the gradients", "ef_eta"},
    {"loco", "ef14 with a decaying residual, stored in one byte per element",
     "ef_beta, ef_reset, ef_storage, ef_rescale_lr"},
};

Json describe(const FeedbackText& feedback) {
  Json row;
  row["kind"] = "feedback";
  row["name"] = feedback.name;
  row["help"] = feedback.help;
  row["keys"] = feedback.keys;
  row["claims"] = {{"stateful", true},
                   {"needs", "a compressor whose mean is the average of what ranks sent"}};
  row["bits_per_element"] = 0;  // on top of the compressor's
  return row;
}

std::string bound_text(const Json& claims) {
  if (claims["bound"] == "none") return "no error bound";
  const double bound = claims["bound_value"].get<double>();
  const std::string value = format("%.4g", bound);
  // Four digits of a share near 1 would say 1.
  const std::string lost = bound > 0.99 ? format("%.3g", 1 - bound) : "(1 - " + value + ")";
  const double scale = claims["bound_scale"].get<double>();
  const std::string scaled = scale == 1 ? "C(x)" : format("%.4g C(x)", scale);
  const std::string over =
      claims["bound_over_ranks"] ? ", |x| of the largest magnitudes over ranks" : "";
  return claims["bound"] == "contraction"
             ? "contraction: E|x - " + scaled + "|^2 <= " + lost + " |x|^2" + over
             : "unbiased: E|x - C(x)|^2 <= " + value + " |x|^2" + over;
}

void print_claims(const Json& row) {
  const Json& claims = row["claims"];
  const int rounds = claims["rounds"].get<int>();
  std::string words = claims["exchange"].get<std::string>();
  // What plan.cc of the aggregator does with combine=auto.
  const bool gathered = words == "all-gather" && claims["elementwise"];
  if (gathered && claims["mean_is_average_of_own"] && claims["bound"] != "none")
    words = "scatter-reduce-all-gather (combine=sra, the default) or all-gather (combine=gather)";
  words += ", " + std::to_string(rounds) + (rounds == 1 ? " round" : " rounds");
  if (claims["elementwise"]) words += ", element-wise";
  if (!claims["fixed_payload"]) words += ", payload of variable length";
  if (claims["sparse"]) words += ", values may be coded by a second stage";
  if (claims["lossless"]) words += ", lossless";
  if (claims["own_feedback"]) words += ", has a residual of its own: ef= is refused";
  if (claims["stateful"]) words += ", keeps state between steps";
  if (claims["needs_error_feedback"]) words += ", needs error feedback (ef=ef14)";
  if (!claims["mean_is_average_of_own"]) words += ", the mean is a vote: ef= is refused";
  std::printf("  as '%s': %s\n", row["canonical"].get<std::string>().c_str(), words.c_str());
  std::printf("  %s; %s%.4g bits per element of a 1000 x 1000 matrix on %d ranks\n",
              bound_text(claims).c_str(), claims["fixed_payload"] ? "" : "at most ",
              row["bits_per_element"].get<double>(), kExampleRanks);
}

void print_method(const Json& row) {
  std::printf("%s: %s\n", row["name"].get<std::string>().c_str(),
              row["help"].get<std::string>().c_str());
  for (const Json& key : row["keys"]) {
    const std::string value = key["default"].get<std::string>();
    const std::string shown = key["name"].get<std::string>() + (value.empty() ? "" : "=" + value);
    std::printf("  %-18s %s%s\n", shown.c_str(), key["meaning"].get<std::string>().c_str(),
                key["name"] == row["main_key"] ? " (key of a bare value)" : "");
  }
  if (row.contains("claims")) {
    print_claims(row);
  } else {
    std::printf("  needs: %s\n", row["needs"].get<std::string>().c_str());
  }
  std::printf("\n");
}

}  // namespace

Result<int> inspect_compressors(const std::vector<std::string>& args) {
  bool as_json = false;
  Flags flags(
      "inspect compressors",
      "Lists the compressors a SPEC may name, with their keys, defaults and tested properties, and "
      "the kinds of error feedback.");
  const Registry registry = Registry::builtin();
  std::vector<std::string> names;
  for (const Registry::Method& method : registry.methods()) names.push_back(method.name);
  std::string name;
  flags.positional("NAME", name, "name of a compressor; without it, all", true, names);
  flags.toggle("json", as_json, "one JSON line per compressor and kind of error feedback");
  flags.example("gradwire inspect compressors topk");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (!name.empty() && std::ranges::find(names, name) == names.end())
    return Status(Code::kInvalidArgument, "inspect compressors: NAME must be one of " +
                                              list_text(names) + " (got '" + name + "'" +
                                              did_you_mean(name, names) + ")");
  for (const Registry::Method& method : registry.methods()) {
    if (!name.empty() && name != method.name) continue;
    const Json row = describe(registry, method);
    if (as_json) {
      std::printf("%s\n", row.dump().c_str());
    } else {
      print_method(row);
    }
  }
  if (!name.empty()) return 0;
  for (const FeedbackText& feedback : kFeedbacks) {
    if (as_json) {
      std::printf("%s\n", describe(feedback).dump().c_str());
    } else {
      const std::string keys = *feedback.keys == 0 ? "" : std::string(" (") + feedback.keys + ")";
      std::printf("ef=%s: %s%s\n", feedback.name, feedback.help, keys.c_str());
    }
  }
  if (!as_json) {
    std::printf(
        "\nKeys of the aggregator, allowed with every compressor: "
        "ef=none|ef14|ef21|ef21_sgdm|loco,\n"
        "ef_scale=auto|none, ef_storage=fp32|bf16|int8, ef_eta=0.1, ef_beta=0.8, ef_reset=1024,\n"
        "ef_rescale_lr=false, combine=auto|sum|gather|sra|oktopk, intra_node=SPEC,\n"
        "inter_node=messages|nccl, min_elems=1024, dense_1d=true, warmup_steps=0, seed=N.\n");
  }
  return 0;
}

}  // namespace gradwire
