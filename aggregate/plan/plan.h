// What happens to each parameter, and which parameters travel together: pure decisions, equal on
// all ranks, taken once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aggregate/plan/keys.h"
#include "device/copy_lane.h"
#include "gradwire/aggregator.h"
#include "gradwire/compressor.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// How a parameter's gradient is averaged.
enum class Path : std::uint8_t {
  kDense,   // all-reduce of the gradient itself
  kSum,     // payloads combine in the network, round by round as the method claims
  kGather,  // all-gather of payloads
  kOkTopk,  // pairs of index and value, added up and chosen from by regions
  kSra,     // scatter, reduce, all-gather of packed shards; of sharded forms the half that they are
};
std::string_view to_string(Path path);

// One rule of the compressor text, made ready.
struct Rule {
  std::string glob;
  SizeRange sizes;
  std::string text;  // its spec in canonical form, the aggregator's keys included
  AggregatorKeys keys;
  std::shared_ptr<const Compressor> compressor = nullptr;
  std::shared_ptr<const Compressor> inner = nullptr;  // inside a node; null: one level
  Path path = Path::kDense;
  std::uint64_t seed = 0;
};

struct Plan {
  std::vector<Rule> rules;
  std::vector<std::string> warnings;
  bool nccl_inside = false;  // gradients of a device go by NCCL inside a node (node_groups.h)
};

// Reads options.compressor. kInvalidArgument for a bad spec, a bad key, an illegal pair, one known
// to fail (a warning instead with options.allow_unsafe), or a rule that no parameter can reach; of
// several rules it names the one.
Result<Plan> read_plan(const Registry& registry, const AggregatorOptions& options);

constexpr bool is_narrow(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

// A registered parameter with its fate.
struct Parameter {
  std::string name;
  TensorView grad = {};  // lent by the caller
  // What a coder of it sees: gradients of 16 bits are widened for one (widened_exchange.cc).
  DType coded_dtype() const { return is_narrow(grad.dtype()) ? DType::kF32 : grad.dtype(); }
  Path path = Path::kDense;
  std::shared_ptr<const Compressor> compressor = nullptr;
  std::uint64_t seed = 0;
  std::int64_t warmup_steps = 0;
  bool error_feedback = false;
  FeedbackOptions feedback = {};
  double scale = 1;  // what error feedback multiplies into each message: 1 or 1 / (1 + omega)
  std::shared_ptr<const Compressor> inner = nullptr;  // what travels inside a node, where the
                                                      // others speak of what travels between nodes
  Between between = Between::kMessages;
  bool dense_levels = false;  // steps that travel dense go on two levels, too
  // Who owns shards, in sharded exchanges: the first so many ranks (0: all), or one rank
  // everything.
  int owners = 0;
  int owner = -1;
  // Of a gradient on a device: where it is final in this step. Recorded by the caller of ready(),
  // and then followed by the aggregator's thread.
  std::shared_ptr<DevicePoint> ready = nullptr;
};

// The first rule whose pattern and sizes match decides. May add to plan.warnings (pairs whose fate
// depends on the shape). kInvalidArgument when no rule matches or the pair fails for this shape.
Result<Parameter> plan_parameter(Plan& plan, const AggregatorOptions& options, std::string name,
                                 TensorView grad);

// Parameters that travel in one exchange: equal path, levels, element type and warm-up, and under
// kSum equal rounds.
struct BucketPlan {
  Path path = Path::kDense;
  std::int64_t warmup_steps = 0;
  std::vector<int> parameters;  // ascending
};

// Fills buckets from the last parameter to the first, at most `bucket_bytes` of gradient each (a
// larger parameter is a bucket of its own). In the order in which backward completes them: by their
// lowest parameter, descending. `size`: the number of ranks, which may decide a round's kind;
// `nodes`: that of nodes, for parameters on two levels.
std::vector<BucketPlan> plan_buckets(std::span<const Parameter> parameters,
                                     std::int64_t bucket_bytes, int size, int nodes = 1);

// How each of a parameter's rounds travels under kSum.
std::vector<RoundKind> rounds_of(const Parameter& parameter, int size);

// What a ring all-reduce of `elems` elements, or the half of it that `form` is, sends from `rank`
// of `size`, in elements: every piece but one in each of its two halves.
std::int64_t ring_elems_sent(std::int64_t elems, int rank, int size,
                             AggregateForm form = AggregateForm::kAllReduce);

}  // namespace gradwire
