#include "device/cuda/contexts.h"

#include <cuda_runtime_api.h>

#include <atomic>

#include "device/cuda/cuda_status.h"
#include "device/cuda/driver.h"
#include "device/cuda/memory_calls.h"

namespace gradwire::cuda {
namespace {

constexpr int kNone = -1;
// The device that was made some thread's last.
std::atomic<int> used_last{kNone};

}  // namespace

OnDevice::OnDevice(Device device) {
  if (device.space != MemorySpace::kCuda) return;
  context_ = current_context();
  int before = kNone;
  status_ = status_of(cudaGetDevice(&before), "cudaGetDevice");
  if (!status_.ok() || (before == device.ordinal && context_ != nullptr)) return;
  status_ = status_of(cudaSetDevice(device.ordinal), "cudaSetDevice");
  if (!status_.ok()) return;
  used_last = device.ordinal;
  changed_ = true;
}

// The context, and not its device: cudaSetDevice() would make one on device 0 for a thread that had
// none.
OnDevice::~OnDevice() {
  if (changed_) set_current_context(context_);
}

SomeContext::SomeContext() {
  const int device = used_last;
  if (device == kNone || current_context() != nullptr) return;
  lent_ = cudaSetDevice(device) == cudaSuccess;
}

SomeContext::~SomeContext() {
  if (lent_) set_current_context(nullptr);
}

}  // namespace gradwire::cuda
