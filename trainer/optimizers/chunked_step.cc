#include "trainer/optimizers/chunked_step.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "device/host_copy.h"

namespace gradwire {

Result<ChunkedStep> ChunkedStep::create(const MemoryArena& arena, MemoryClass what,
                                        std::shared_ptr<MemoryLink> link, std::int64_t chunk,
                                        std::int64_t elems) {
  if (chunk < 1) {
    return Status(Code::kInvalidArgument,
                  format("offload chunk of %lld elements (expected 1 or more)",
                         static_cast<long long>(chunk)));
  }
  ChunkedStep made;
  made.link_ = std::move(link);
  made.chunk_ = static_cast<std::size_t>(std::clamp<std::int64_t>(elems, 1, chunk));
  GW_ASSIGN(made.arrived_, arena.allocate(what, made.chunk_ * sizeof(float)));
  return made;
}

ChunkedStep::Source ChunkedStep::from(std::span<const float> gradients, const MemoryArena& arena) {
  return {[gradients, arena](std::size_t first, std::span<float> part) -> Status {
            GW_TRY(copy_between(gradients.subspan(first, part.size()), arena, part, {}));
            return wait_for(arena.stream());
          },
          sizeof(float)};
}

Status ChunkedStep::part(Optimizer& optimizer, std::span<float> master, const Source& gradients,
                         std::size_t first, std::size_t count, const Updated& updated) {
  GW_TRY(first_pass(optimizer, master, gradients, first, count));
  return updated(first, master.subspan(first, count));
}

Status ChunkedStep::first_pass(Optimizer& optimizer, std::span<float> master,
                               const Source& gradients, std::size_t first, std::size_t count) {
  const std::span<float> arrived(reinterpret_cast<float*>(arrived_.bytes().data()), count);
  GW_TRY(gradients.read(first, arrived));
  if (link_) link_->bytes_out += static_cast<std::int64_t>(count * gradients.width);
  return optimizer.step_part(master.subspan(first, count), arrived,
                             static_cast<std::int64_t>(first));
}

Status ChunkedStep::run(Optimizer& optimizer, std::span<float> master, const Source& gradients,
                        double lr, const Updated& updated) {
  GW_TRY(optimizer.begin_step(lr));
  const bool once = !optimizer.two_passes();
  const auto each = [&](auto visit) -> Status {
    for (std::size_t first = 0; first < master.size(); first += chunk_) {
      GW_TRY(visit(first, std::min(chunk_, master.size() - first)));
    }
    return {};
  };
  GW_TRY(each([&](std::size_t first, std::size_t count) {
    return once ? part(optimizer, master, gradients, first, count, updated)
                : first_pass(optimizer, master, gradients, first, count);
  }));
  if (once) return {};
  GW_TRY(optimizer.end_pass());
  return each([&](std::size_t first, std::size_t count) -> Status {
    const std::span<float> changed = master.subspan(first, count);
    GW_TRY(optimizer.end_part(changed, static_cast<std::int64_t>(first)));
    return updated(first, changed);
  });
}

}  // namespace gradwire
