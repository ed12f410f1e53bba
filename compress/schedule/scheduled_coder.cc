#include "compress/schedule/scheduled_coder.h"

#include <algorithm>

#include "base/text.h"
#include "device/ops.h"

namespace gradwire {

Status ScheduledCoder::begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) {
  GW_TRY(change_to(step, stream));
  return coder_->begin(grad, step, stream);
}

Status ScheduledCoder::begin_with_feedback(ConstTensorView grad, const Feedback& feedback,
                                           std::uint64_t step, const Stream& stream) {
  GW_TRY(change_to(step, stream));
  return coder_->begin_with_feedback(grad, feedback, step, stream);
}

Status ScheduledCoder::finish(TensorView mean, TensorView own, const Stream& stream) {
  last_.reset();
  return coder_->finish(mean, own, stream);
}

Status ScheduledCoder::change_to(std::uint64_t step, const Stream& stream) {
  const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), step);
  const auto stage = static_cast<std::size_t>(after - firsts_.begin()) - 1;
  if (stage == stage_) return {};
  GW_ASSIGN(std::unique_ptr<Coder> next, open_(stage));
  const std::vector<NamedTensor> kept = coder_->state();
  const std::vector<NamedTensor> wanted = next->state();
  if (kept.size() != wanted.size()) {
    return {Code::kInternal,
            format("schedule: %zu tensors of state became %zu at step %llu", kept.size(),
                   wanted.size(), static_cast<unsigned long long>(step))};
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    GW_TRY(copy_bytes(kept[i].tensor.bytes(), kept[i].tensor.device(), wanted[i].tensor.bytes(),
                      wanted[i].tensor.device(), stream));
  }
  last_ = std::exchange(coder_, std::move(next));
  stage_ = stage;
  return {};
}

}  // namespace gradwire
