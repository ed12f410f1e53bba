// The token that continues a text, drawn from what a model says of all of them.
#pragma once

#include <cstdint>
#include <span>

#include "gradwire/status.h"

namespace gradwire {

struct SamplingOptions {
  // Logits are divided by it before they become probabilities. 0: the most likely token, always.
  double temperature = 1;
  std::int64_t top_k = 0;  // the most likely ones alone are drawn; 0: all
  std::uint64_t seed = 1;
};

// The token of number `drawn` (from 0) of a text: a function of its arguments alone. Of equally
// likely ones the first is the more likely. kInvalidArgument: a logit that is not finite.
Result<std::uint32_t> next_token(std::span<const float> logits, const SamplingOptions& options,
                                 std::int64_t drawn);

}  // namespace gradwire
