#include "aggregate/state/state_image.h"

#include <utility>

#include "device/ops.h"

namespace gradwire {
namespace {

bool on_device(const NamedTensor& entry) {
  return entry.tensor.device().space == MemorySpace::kCuda;
}

}  // namespace

Result<StateImage> StateImage::take(const ExchangeContext& context,
                                    std::vector<NamedTensor> state) {
  // A copy to or from memory that is not pinned waits by itself, and as long as it takes.
  GW_TRY(context.await_lane());
  StateImage image;
  image.there_ = std::move(state);
  for (const NamedTensor& entry : image.there_) {
    image.here_.push_back(entry);
    if (!on_device(entry)) continue;
    const TensorView& there = entry.tensor;
    GW_ASSIGN(Buffer memory, Buffer::allocate(there.bytes().size()));
    image.here_.back().tensor = memory.tensor(there.shape(), there.dtype());
    image.memory_.push_back(std::move(memory));
    GW_TRY(copy_bytes(there.bytes(), there.device(), image.here_.back().tensor.bytes(), {},
                      context.stream()));
  }
  GW_TRY(context.await_lane());
  return Result<StateImage>(std::move(image));
}

// The lane has had nothing to do since take().
Status StateImage::put_back(const ExchangeContext& context) const {
  for (std::size_t i = 0; i < there_.size(); ++i) {
    if (!on_device(there_[i])) continue;
    const TensorView& there = there_[i].tensor;
    GW_TRY(
        copy_bytes(here_[i].tensor.bytes(), {}, there.bytes(), there.device(), context.stream()));
  }
  return context.await_lane();
}

}  // namespace gradwire
