#include "device/cuda/late_work.h"

#include <mutex>
#include <utility>
#include <vector>

#include "device/cuda/capture.h"
#include "device/cuda/memory.h"

namespace gradwire::cuda {
namespace {

struct LateWork {
  std::mutex mutex;
  std::vector<Event> points;
  std::vector<std::byte*> memory;  // pinned
  struct Block {
    std::byte* data;
    Device device;
  };
  std::vector<Block> refused;  // of devices
};

// Never destroyed: memory may be freed by what is.
LateWork& late_work() {
  static auto& late = *new LateWork();
  return late;
}

// An error is that of the work before the point, which has ended then.
bool is_over(const Event& point) {
  const Result<bool> passed = point.passed();
  return !passed.has_value() || passed.value();
}

}  // namespace

void give_up_on(Event point) {
  LateWork& late = late_work();
  const std::lock_guard lock(late.mutex);
  late.points.push_back(std::move(point));
}

void free_pinned(std::byte* data) noexcept {
  const BesideCaptures beside;
  std::vector<std::byte*> free;
  {
    LateWork& late = late_work();
    const std::lock_guard lock(late.mutex);
    late.memory.push_back(data);
    std::erase_if(late.points, is_over);
    if (late.points.empty()) free.swap(late.memory);
  }
  // CUDA may wait for a device here.
  for (std::byte* const each : free) static_cast<void>(cudaFreeHost(each));
}

void free_in_order(std::byte* data, Device device) noexcept {
  const BesideCaptures beside;
  std::vector<LateWork::Block> blocks;
  LateWork& late = late_work();
  {
    const std::lock_guard lock(late.mutex);
    blocks.swap(late.refused);
  }
  blocks.push_back({data, device});
  // CUDA may wait for a device here. Other errors are those of earlier work.
  std::erase_if(blocks, [](const LateWork::Block& block) {
    const OnDevice here(block.device);
    return cudaFreeAsync(block.data, nullptr) != cudaErrorStreamCaptureImplicit;
  });
  const std::lock_guard lock(late.mutex);
  late.refused.insert(late.refused.end(), blocks.begin(), blocks.end());
}

}  // namespace gradwire::cuda
