#include "trainer/step/early_drain.h"

#include <algorithm>

namespace gradwire {

Result<std::int64_t> EarlyDrain::steps_left(StepAverages& averages, Consensus& consensus,
                                            std::int64_t known, std::int64_t to_drain) {
  if (to_drain == 0) return known;
  if (ends_in_ == 0 && since_ % period(to_drain) == 0) {
    GW_ASSIGN(const bool ends, averages.hear(consensus));
    if (ends) {
      ends_in_ = to_drain;
    } else if (known > to_drain) {
      GW_TRY(averages.ask(consensus));
    }
  }
  const std::int64_t left = ends_in_ == 0 ? known : std::min(known, ends_in_);
  if (left == 1) GW_TRY(averages.hear(consensus).error());  // a drain leaves nothing under way
  since_ = left == 1 ? 0 : since_ + 1;
  ends_in_ = left == 1 ? 0 : std::max<std::int64_t>(ends_in_ - 1, 0);
  return left;
}

}  // namespace gradwire
