// The aggregator's own keys of a compressor spec, apart from the method's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aggregate/plan/key_names.h"
#include "compress/error_feedback/feedback.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"

namespace gradwire {

// How the payloads of a parameter are combined over ranks.
enum class Combine : std::uint8_t { kAuto, kSum, kGather, kSra, kOkTopk };
std::string_view to_string(Combine combine);  // "auto", "sum", "gather", "sra", "oktopk"

// What carries gradients of a device between nodes, on the outer of two levels.
enum class Between : std::uint8_t { kMessages, kNccl };

// Meanings and defaults: aggregator.h.
struct AggregatorKeys {
  bool error_feedback = false;  // feedback.kind is not kNone
  FeedbackOptions feedback;     // ef, ef_storage, ef_eta, ef_beta, ef_reset, ef_rescale_lr
  bool scale_feedback = true;   // ef_scale=auto
  Combine combine = Combine::kAuto;
  std::string inner = {};  // a spec; empty: one level
  Between between = Between::kMessages;
  std::int64_t min_elems = 1024;
  bool dense_1d = true;
  std::int64_t warmup_steps = 0;
  std::optional<std::uint64_t> seed;  // nullopt: AggregatorOptions::seed
};

struct SplitSpec {
  AggregatorKeys keys;
  SpecChain method;              // the keys that are left, for the registry
  std::vector<OldKey> old_keys;  // that were given under an old name
};

// Takes the aggregator's keys out of the first stage. kInvalidArgument names the key, the value
// got and the values expected; a key of the aggregator's in a later stage is refused too.
Result<SplitSpec> split_spec(SpecChain spec);

// Is `key` one of the aggregator's? For messages about unknown keys.
bool is_aggregator_key(std::string_view key);
// "ef, ef_scale, ..."
std::string_view aggregator_key_list();
std::vector<std::string> aggregator_key_names();

}  // namespace gradwire
