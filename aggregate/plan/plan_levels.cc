#include "aggregate/plan/plan_levels.h"

#include <utility>

namespace gradwire {

Result<std::shared_ptr<const Compressor>> read_inner(const Registry& registry, const Rule& rule,
                                                     AggregateForm form) {
  if (form != AggregateForm::kAllReduce) {
    return refused(rule,
                   "intra_node adds a level to an average for all ranks, and sharded forms make "
                   "none; leave intra_node out");
  }
  auto made = registry.make(std::string_view(rule.keys.inner));
  if (!made.has_value()) return made.error().with_context("intra_node=" + rule.keys.inner);
  std::shared_ptr<const Compressor> inner = std::move(made).value();
  if (inner->spec() == "none") return inner;
  if (rule.compressor->spec() == "none") {
    return refused(rule,
                   "intra_node=" + rule.keys.inner +
                       " would round on the fast links inside nodes, and 'none' not on the slow "
                       "ones between them; write intra_node=none");
  }
  const Traits traits = inner->traits();
  const bool sums = traits.elementwise && traits.mean_is_average_of_own &&
                    inner->bound(kLargeMatrix).kind != ErrorBound::Kind::kNone;
  if (!sums) {
    return refused(rule,
                   "intra_node=" + rule.keys.inner +
                       " is no elementwise method that keeps magnitudes; write intra_node=none, "
                       "or a cast or quantiser");
  }
  if (rule.keys.error_feedback) {
    return refused(rule, "error feedback cannot see what intra_node=" + rule.keys.inner +
                             " rounds inside a node; write intra_node=none, or leave ef out");
  }
  return inner;
}

bool sums_on_two_levels(const Rule& rule, bool nccl_inside, Device place) {
  if (rule.inner == nullptr) return false;
  if (rule.compressor->spec() == "none") return true;
  return nccl_inside && place.space == MemorySpace::kCuda &&
         rule.keys.between == Between::kMessages;
}

}  // namespace gradwire
