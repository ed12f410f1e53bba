#include "device/cuda/stream.h"

#include <cstdint>

#include "device/cuda/capture.h"
#include "device/cuda/contexts.h"
#include "device/cuda/cuda_status.h"
#include "device/cuda/memory.h"

namespace gradwire::cuda {

void OwnedStream::Destroy::operator()(cudaStream_t stream) const noexcept {
  const SomeContext some;
  static_cast<void>(cudaStreamDestroy(stream));
}
void Event::Destroy::operator()(cudaEvent_t event) const noexcept {
  const SomeContext some;
  static_cast<void>(cudaEventDestroy(event));
}

Result<OwnedStream> OwnedStream::create(Device device) { return create(device, cudaStreamDefault); }

Result<OwnedStream> OwnedStream::create_apart(Device device) {
  return create(device, cudaStreamNonBlocking);
}

Result<OwnedStream> OwnedStream::create(Device device, unsigned flags) {
  const OnDevice here(device);
  GW_TRY(here.status());
  cudaStream_t stream = nullptr;
  GW_CUDA(cudaStreamCreateWithFlags(&stream, flags));
  return OwnedStream(device, stream);
}

Result<bool> goes_with_default(const Stream& stream) {
  // CUDA has names for streams of its own: null and 1 are the default one, 2 is a thread's.
  constexpr std::uintptr_t kLastName = 2;
  if (reinterpret_cast<std::uintptr_t>(stream.native) <= kLastName) return true;
  const OnDevice here(stream.device);
  GW_TRY(here.status());
  unsigned flags = 0;
  GW_CUDA(cudaStreamGetFlags(native(stream), &flags));
  return (flags & cudaStreamNonBlocking) == 0;
}

Result<Event> Event::create(Device device) { return create(device, cudaEventDisableTiming); }

Result<Event> Event::create_timed(Device device) { return create(device, cudaEventDefault); }

Result<Event> Event::create(Device device, unsigned flags) {
  const OnDevice here(device);
  GW_TRY(here.status());
  cudaEvent_t event = nullptr;
  GW_CUDA(cudaEventCreateWithFlags(&event, flags));
  return Event(event);
}

Status Event::record(const Stream& stream) {
  const OnDevice here(stream.device);
  GW_TRY(here.status());
  GW_CUDA(cudaEventRecord(event_.get(), native(stream)));
  return {};
}

Status Event::before(const Stream& stream) const {
  const OnDevice here(stream.device);
  GW_TRY(here.status());
  GW_CUDA(cudaStreamWaitEvent(native(stream), event_.get(), 0));
  return {};
}

Result<bool> Event::passed() const {
  const BesideCaptures beside;
  const cudaError_t state = cudaEventQuery(event_.get());
  if (state == cudaErrorNotReady) return false;
  GW_TRY(status_of(state, "cudaEventQuery"));
  return true;
}

Result<double> Event::milliseconds_since(const Event& since) const {
  float milliseconds = 0;
  GW_CUDA(cudaEventElapsedTime(&milliseconds, since.event_.get(), event_.get()));
  return static_cast<double>(milliseconds);
}

}  // namespace gradwire::cuda
