#include "trainer/optimizers/offloaded_step.h"

#include <algorithm>

#include "base/text.h"

namespace gradwire {

Result<OffloadedStep> OffloadedStep::create(const MemoryPlaces& places, std::int64_t chunk,
                                            std::int64_t elems) {
  if (chunk < 1) {
    return Status(Code::kInvalidArgument, format("offload chunk of %lld elements; 1 or more wanted",
                                                 static_cast<long long>(chunk)));
  }
  OffloadedStep made;
  made.places_ = places;
  made.chunk_ = static_cast<std::size_t>(std::clamp<std::int64_t>(elems, 1, chunk));
  GW_ASSIGN(made.arrived_, places.host.allocate(MemoryClass::kOther, made.chunk_ * sizeof(float)));
  return made;
}

Status OffloadedStep::run(Optimizer& optimizer, std::span<float> master,
                          std::span<const float> gradients, double lr, const Updated& updated) {
  GW_TRY(optimizer.begin_step(lr));
  for (std::size_t first = 0; first < master.size(); first += chunk_) {
    const std::size_t count = std::min(chunk_, master.size() - first);
    const std::span<float> arrived(reinterpret_cast<float*>(arrived_.bytes().data()), count);
    std::ranges::copy(gradients.subspan(first, count), arrived.begin());
    places_.link->bytes_out += static_cast<std::int64_t>(count * sizeof(float));
    const std::span<float> part = master.subspan(first, count);
    optimizer.step_part(part, arrived, static_cast<std::int64_t>(first));
    GW_TRY(updated(first, part));
  }
  return {};
}

}  // namespace gradwire
