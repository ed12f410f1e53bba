#include "tests/torch/device/pinned.h"

#include <cstdlib>
#include <mutex>
#include <new>
#include <set>

namespace gradwire::emulated_torch {
namespace {

// The blocks that live.
class Pinned {
 public:
  void* take(std::size_t bytes) {
    constexpr std::size_t kAlignment = 64;
    const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* const data = std::aligned_alloc(kAlignment, whole);
    if (data == nullptr) throw std::bad_alloc();
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.insert(data);
    return data;
  }
  void give_back(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.erase(data);
    std::free(data);
  }
  bool has(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return blocks_.contains(data);
  }

 private:
  std::mutex mutex_;
  std::set<const void*> blocks_;
};
Pinned& pinned() {
  static auto* const all = new Pinned;
  return *all;
}

void release_pinned(void* data) {
  if (data != nullptr) pinned().give_back(data);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : pinned().take(bytes);
    return {data, data, &release_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

c10::Allocator* pinned_allocator() {
  static PinnedAllocator all;
  return &all;
}

bool is_pinned(const void* data) { return pinned().has(data); }

}  // namespace gradwire::emulated_torch
