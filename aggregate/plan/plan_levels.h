// What rules say of two levels: inside nodes, and between them.
#pragma once

#include <memory>
#include <string>

#include "aggregate/plan/plan.h"
#include "gradwire/aggregator.h"
#include "gradwire/compressor.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Stands for any tensor worth compressing where a rule is judged before its parameters are known.
inline constexpr Shape kLargeMatrix = Shape::matrix(1024, 1024);

// kInvalidArgument, naming the rule.
inline Status refused(const Rule& rule, const std::string& why) {
  return {Code::kInvalidArgument, "compressor '" + rule.text + "': " + why};
}

// What travels inside a node, which must be as good as a sum: no residual sees it. Of a rule with
// `inner`, whose compressor is there.
Result<std::shared_ptr<const Compressor>> read_inner(const Registry& registry, const Rule& rule,
                                                     AggregateForm form);

// Whether gradients at `place` that are not compressed go on two levels by a rule. That is so where
// the rule says nothing else, and where one level would have NCCL between nodes, which the rule
// joins by messages. Elsewhere the communicator's all-reduce knows levels by itself.
bool sums_on_two_levels(const Rule& rule, bool nccl_inside, Device place);

}  // namespace gradwire
