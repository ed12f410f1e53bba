#include "aggregate/plan/plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "aggregate/plan/plan_levels.h"
#include "aggregate/traffic.h"
#include "base/nearest.h"
#include "base/text.h"
#include "compress/error_feedback/legality.h"
#include "compress/spec_reader.h"
#include "gradwire/schedule.h"

namespace gradwire {
namespace {

constexpr int kMostThreads = 1024;

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

// Names the aggregator's keys beside the method's, which the registry alone could not.
Status check_keys(const Registry& registry, const SpecChain& chain) {
  for (const Registry::Method& method : registry.methods()) {
    if (method.name != chain.front().name) continue;
    for (const auto& [key, value] : chain.front().params) {
      const auto named = [&key = key](const SpecKey& known) { return known.name == key; };
      if (key.empty() || std::any_of(method.keys.begin(), method.keys.end(), named)) continue;
      std::string known;
      std::vector<std::string> names = aggregator_key_names();
      for (const SpecKey& k : method.keys) {
        known += k.name + ", ";
        names.push_back(k.name);
      }
      return {Code::kInvalidArgument, "compressor '" + method.name + "': unknown key '" + key +
                                          "'" + did_you_mean(key, names) + " (value '" + value +
                                          "'; keys: " + known + std::string(aggregator_key_list()) +
                                          ")"};
    }
  }
  return {};
}

// Under sra a chunk is encoded a second time as a sum over ranks, and what that decodes to is
// divided by their number: a method that forgets how large its input was (the bare sign) would
// answer with nonsense. A vote is not divided.
bool survives_second_encoding(const Rule& rule, const Traits& traits) {
  if (!traits.elementwise) return false;
  return !traits.mean_is_average_of_own ||
         rule.compressor->bound(kLargeMatrix).kind != ErrorBound::Kind::kNone;
}

Path automatic_path(const Rule& rule, const Traits& traits) {
  const bool linear = traits.exchange == Exchange::kAllReduceSum;
  const bool lossy_cast = linear && traits.elementwise && traits.payload_dtype != DType::kF32;
  if (lossy_cast && rule.keys.error_feedback) return Path::kSra;
  if (linear) return Path::kSum;
  const bool vote = !traits.mean_is_average_of_own;
  return vote || !survives_second_encoding(rule, traits) ? Path::kGather : Path::kSra;
}

// Pairs of index and value, whose sums are chosen from once more.
Result<Path> pairs_path(const Rule& rule, const Traits& traits) {
  const auto no = [&rule](const char* why) {
    return refused(rule, std::string("combine=oktopk ") + why);
  };
  if (!traits.sparse || traits.exchange != Exchange::kAllGather || traits.rounds != 1) {
    return no(
        "adds up pairs of index and value, and this method does not choose its own; write topk or "
        "threshold, or leave combine out");
  }
  if (traits.lossless)
    return no("leaves out small sums, which is not lossless; write combine=gather");
  if (traits.own_feedback) {
    return no(
        "drops small sums, which a method with a residual of its own counts as sent; write "
        "combine=gather");
  }
  const std::string spec = rule.compressor->spec();
  if (spec.find('|') != std::string::npos || spec.find("index=") != std::string::npos) {
    return no("sends indices and sums as they are; write it without a second stage and index=");
  }
  return Path::kOkTopk;
}

Result<Path> asked_path(const Rule& rule, const Traits& traits) {
  switch (rule.keys.combine) {
    case Combine::kAuto: return automatic_path(rule, traits);
    case Combine::kGather: return Path::kGather;
    case Combine::kSum:
      if (traits.exchange == Exchange::kAllReduceSum) return Path::kSum;
      return refused(rule,
                     "combine=sum adds payloads in the network, and this method's do not add up; "
                     "write combine=gather" +
                         std::string(traits.elementwise ? " or combine=sra" : ""));
    case Combine::kOkTopk: return pairs_path(rule, traits);
    case Combine::kSra: break;
  }
  if (traits.elementwise) return Path::kSra;
  return refused(
      rule,
      "combine=sra packs one chunk per rank, and this method does not work element by "
      "element; write combine=" +
          std::string(traits.exchange == Exchange::kAllReduceSum ? "sum or combine=gather"
                                                                 : "gather"));
}

// Sharded results are packed for, or by, the one rank that owns them.
Result<Path> sharded_path(const Rule& rule, const Traits& traits, AggregateForm form) {
  const bool gathers = form == AggregateForm::kAllGather;
  const std::string name = gathers ? "the form kAllGather" : "the form kReduceScatter";
  if (rule.keys.combine != Combine::kAuto) {
    return refused(rule, "combine selects how an average reaches all ranks, and " + name +
                             " has one way only; leave combine out");
  }
  if (rule.compressor->spec() == "none") return Path::kDense;
  if (!traits.elementwise) {
    return refused(rule, name +
                             " packs one shard per rank, and this method does not work element by "
                             "element; write one that does (cast, fp8, qsgd, minmax, signsgd), "
                             "or none");
  }
  if (!gathers) return Path::kSra;
  if (!traits.mean_is_average_of_own) {
    return refused(rule, name +
                             " has one contribution per element, so that a vote would be its sign; "
                             "write a method that keeps magnitudes, such as signsgd or qsgd");
  }
  if (rule.keys.feedback.kind == FeedbackKind::kEf21Sgdm) {
    return refused(
        rule, "ef21_sgdm averages gradients over steps, and " + name + " has none; write ef=ef21");
  }
  if (rule.keys.feedback.rescale_lr) {
    return refused(rule, name +
                             " has no learning rate that a residual could follow; write it "
                             "without ef_rescale_lr");
  }
  return Path::kSra;
}

// What addition in a 16-bit payload rounds away reaches no residual.
Status check_rounding(const Rule& rule, const Traits& traits, bool allow_unsafe,
                      std::vector<std::string>& warnings) {
  const bool rounds = traits.payload_dtype == DType::kF16 || traits.payload_dtype == DType::kBF16;
  if (!rule.keys.error_feedback || rule.path != Path::kSum || !rounds) return {};
  const std::string why = "error feedback cannot see what additions in " +
                          std::string(to_string(traits.payload_dtype)) +
                          " round away under combine=sum";
  if (!allow_unsafe) {
    return refused(rule, why + "; write combine=sra, combine=gather or leave ef out");
  }
  warnings.push_back("compressor '" + rule.text + "': " + why +
                     "; run because unsafe pairs are allowed");
  return {};
}

PairOptions pair_options(const Rule& rule, const AggregatorOptions& options) {
  return {.error_feedback = rule.keys.error_feedback,
          .ef_scale_auto = rule.keys.scale_feedback,
          .allow_unsafe = options.allow_unsafe,
          .momentum = options.momentum};
}

// Methods that keep what they did not send by themselves (dgc) keep momentum with it: parameters
// and steps that travelled dense would go without, so that by default none does.
Status settle_own_feedback(Rule& rule, const Spec& stage, const Traits& traits) {
  const SpecReader reader(stage);
  if (!traits.own_feedback) {
    if (rule.keys.error_feedback || !reader.has("ef_rescale_lr")) return {};
    return refused(rule,
                   "key 'ef_rescale_lr' rescales a residual, and there is none; leave it out, or "
                   "write ef=ef14");
  }
  if (!reader.has("min_elems")) rule.keys.min_elems = 0;
  if (!reader.has("dense_1d")) rule.keys.dense_1d = false;
  if (rule.keys.warmup_steps == 0) return {};
  return refused(
      rule,
      "uncompressed steps would miss the momentum that this method keeps; leave warmup_steps out "
      "(dgc: let the ratio follow the step, ratio=exp(0.25..0.001@400/4))");
}

Result<Rule> read_rule(const Registry& registry, const AggregatorOptions& options,
                       const SpecRule& text, std::vector<std::string>& warnings) {
  Rule rule;
  rule.glob = text.glob;
  rule.sizes = text.sizes;
  GW_ASSIGN(SplitSpec split, split_spec(text.spec));
  for (const OldKey& key : split.old_keys) add_once(warnings, notice_of(key));
  SpecChain present = text.spec;
  GW_TRY(rename_old_keys(present).error());
  rule.text = to_string(present);
  GW_TRY(check_keys(registry, split.method));
  rule.keys = split.keys;
  rule.seed = split.keys.seed.value_or(options.seed);
  GW_ASSIGN(rule.compressor, registry.make(split.method));
  const Traits traits = rule.compressor->traits();
  GW_TRY(settle_own_feedback(rule, text.spec.front(), traits));
  GW_ASSIGN(rule.path, options.form == AggregateForm::kAllReduce
                           ? asked_path(rule, traits)
                           : sharded_path(rule, traits, options.form));
  if (!rule.keys.inner.empty()) {
    GW_ASSIGN(rule.inner, read_inner(registry, rule, options.form));
  }
  GW_TRY(check_rounding(rule, traits, options.allow_unsafe, warnings));
  GW_TRY(check_traffic(options.traffic, {rule.text, rule.keys, *rule.compressor},
                       options.allow_unsafe, warnings));
  // A pair that fails for a large matrix is refused here already, before any parameter is known.
  auto verdict = check_pair(*rule.compressor, kLargeMatrix, pair_options(rule, options));
  if (!verdict.has_value()) return verdict.error();
  return rule;
}

// A rule behind one that takes all its parameters would be a wish that nobody hears.
Status check_reachable(std::span<const SpecRule> rules, std::size_t index) {
  const SpecRule& rule = rules[index];
  for (const SpecRule& before : rules.first(index)) {
    const bool names = before.glob == "*" || before.glob == rule.glob;
    if (!names || !before.sizes.covers(rule.sizes)) continue;
    return {Code::kInvalidArgument, "no parameter reaches it, because '" + to_string(before) +
                                        "' before it takes them all; write it first, or leave it "
                                        "out"};
  }
  return {};
}

bool travels_dense(const Rule& rule, const Shape& shape) {
  if (shape.elems() == 0 || shape.elems() < rule.keys.min_elems) return true;
  if (rule.keys.dense_1d && shape.rank == 1) return true;
  // The same all-reduce, without a copy into a payload.
  return rule.path == Path::kSum && rule.compressor->spec() == "none";
}

}  // namespace

std::string_view to_string(Path path) {
  switch (path) {
    case Path::kDense: return "dense";
    case Path::kSum: return "sum";
    case Path::kGather: return "gather";
    case Path::kOkTopk: return "oktopk";
    case Path::kSra: return "sra";
  }
  return "?";
}

Result<Plan> read_plan(const Registry& registry, const AggregatorOptions& options) {
  if (options.bucket_bytes <= 0) {
    return Status(Code::kInvalidArgument,
                  format("aggregator: bucket_bytes is %lld (expected above 0)",
                         static_cast<long long>(options.bucket_bytes)));
  }
  if (options.threads < 1 || options.threads > kMostThreads) {
    return Status(Code::kInvalidArgument, format("aggregator: threads is %d (expected 1 to %d)",
                                                 options.threads, kMostThreads));
  }
  GW_ASSIGN(const auto texts, parse_spec_rules(options.compressor));
  Plan plan;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto rule = read_rule(registry, options, texts[i], plan.warnings);
    const Status status = rule.has_value() ? check_reachable(texts, i) : rule.error();
    if (!status.ok()) {
      return texts.size() == 1 ? status : status.with_context("rule '" + to_string(texts[i]) + "'");
    }
    plan.rules.push_back(std::move(rule).value());
  }
  return plan;
}

Result<Parameter> plan_parameter(Plan& plan, const AggregatorOptions& options, std::string name,
                                 TensorView grad) {
  const std::int64_t elems = grad.elems();
  const auto matches = [&](const Rule& rule) {
    return glob_matches(rule.glob, name) && rule.sizes.holds(elems, size_of(grad.dtype()));
  };
  const auto rule = std::find_if(plan.rules.begin(), plan.rules.end(), matches);
  if (rule == plan.rules.end()) {
    return Status(Code::kInvalidArgument,
                  "aggregator: no rule of '" + options.compressor + "' matches parameter '" + name +
                      format("' (%lld elements, %zu bytes); end the rules "
                             "with '*=none'",
                             static_cast<long long>(elems), grad.bytes().size()));
  }
  Parameter parameter{.name = std::move(name),
                      .grad = grad,
                      .path = Path::kDense,
                      .compressor = rule->compressor,
                      .seed = rule->seed,
                      .warmup_steps = 0,
                      .error_feedback = false,
                      .feedback = {},
                      .scale = 1,
                      .inner = nullptr};
  parameter.between = rule->keys.between;
  parameter.dense_levels = sums_on_two_levels(*rule, plan.nccl_inside, grad.device());
  if (travels_dense(*rule, grad.shape())) {
    if (parameter.dense_levels) parameter.inner = rule->inner;
    return parameter;
  }
  parameter.path = rule->path;
  parameter.inner = rule->inner;
  parameter.warmup_steps = rule->keys.warmup_steps;
  parameter.error_feedback = rule->keys.error_feedback;
  parameter.feedback = rule->keys.feedback;
  auto verdict = check_pair(*rule->compressor, grad.shape(), pair_options(*rule, options));
  if (!verdict.has_value()) {
    return verdict.error().with_context("parameter '" + parameter.name + "'");
  }
  parameter.scale = verdict.value().scale;
  for (const std::string& warning : verdict.value().warnings) add_once(plan.warnings, warning);
  return parameter;
}

std::vector<RoundKind> rounds_of(const Parameter& parameter, int size) {
  std::vector<RoundKind> rounds;
  for (int round = 0; round < parameter.compressor->traits().rounds; ++round) {
    rounds.push_back(parameter.compressor->round_kind(round, parameter.coded_dtype(), size));
  }
  return rounds;
}

std::vector<BucketPlan> plan_buckets(std::span<const Parameter> parameters,
                                     std::int64_t bucket_bytes, int size, int nodes) {
  using Key = std::tuple<Path, std::string, Between, std::int64_t, DType, std::vector<RoundKind>>;
  struct Open {
    Key key;
    BucketPlan bucket;
    std::int64_t bytes = 0;
  };
  std::vector<Open> open;
  std::vector<BucketPlan> full;
  for (auto i = static_cast<int>(parameters.size()) - 1; i >= 0; --i) {
    const Parameter& parameter = parameters[static_cast<std::size_t>(i)];
    const bool adds_up = parameter.path == Path::kSum;
    const bool levels = parameter.inner != nullptr;
    const Key key{parameter.path,
                  levels ? parameter.inner->spec() : "",
                  levels ? parameter.between : Between::kMessages,
                  parameter.warmup_steps,
                  parameter.grad.dtype(),
                  adds_up ? rounds_of(parameter, levels ? nodes : size) : std::vector<RoundKind>()};
    auto place =
        std::find_if(open.begin(), open.end(), [&key](const Open& o) { return o.key == key; });
    if (place == open.end()) {
      place = open.insert(open.end(), {key, {parameter.path, parameter.warmup_steps, {}}, 0});
    }
    const auto bytes = static_cast<std::int64_t>(parameter.grad.bytes().size());
    if (!place->bucket.parameters.empty() && place->bytes + bytes > bucket_bytes) {
      full.push_back(std::exchange(place->bucket, {parameter.path, parameter.warmup_steps, {}}));
      place->bytes = 0;
    }
    place->bucket.parameters.push_back(i);
    place->bytes += bytes;
  }
  for (Open& last : open) full.push_back(std::move(last.bucket));
  for (BucketPlan& bucket : full) {
    std::reverse(bucket.parameters.begin(), bucket.parameters.end());
  }
  std::sort(full.begin(), full.end(), [](const BucketPlan& a, const BucketPlan& b) {
    return a.parameters.front() > b.parameters.front();
  });
  return full;
}

std::int64_t ring_elems_sent(std::int64_t elems, int rank, int size, AggregateForm form) {
  if (size == 1) return 0;
  // The reduce-scatter half keeps back this rank's piece, the all-gather half the one after that.
  const std::int64_t scattered = elems - piece(elems, size, rank).size();
  const std::int64_t gathered = elems - piece(elems, size, (rank + 1) % size).size();
  return (form == AggregateForm::kAllGather ? 0 : scattered) +
         (form == AggregateForm::kReduceScatter ? 0 : gathered);
}

}  // namespace gradwire
