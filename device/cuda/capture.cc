#include "device/cuda/capture.h"

#include <cuda_runtime_api.h>

#include <string>

#include "device/cuda/cuda_status.h"
#include "device/cuda/memory.h"

namespace gradwire::cuda {

Result<bool> is_capturing(const Stream& stream) {
  // CUDA's default stream cannot be captured.
  if (stream.device.space != MemorySpace::kCuda || stream.native == nullptr) return false;
  const OnDevice here(stream.device);
  GW_TRY(here.status());
  cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
  GW_CUDA(cudaStreamIsCapturing(native(stream), &state));
  if (state == cudaStreamCaptureStatusInvalidated) {
    return Status(Code::kInvalidArgument, "a stream whose capture has failed");
  }
  return state == cudaStreamCaptureStatusActive;
}

Status refuse_capture(const char* what, const Stream& stream) {
  GW_ASSIGN(const bool captured, is_capturing(stream));
  if (!captured) return {};
  return {Code::kUnsupported,
          std::string(what) + " on a stream that is captured as a CUDA graph (not served)"};
}

// Fails only where there is no device at all, as what it surrounds does.
BesideCaptures::BesideCaptures() : before_(cudaStreamCaptureModeGlobal) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  if (cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess) before_ = mode;
}

BesideCaptures::~BesideCaptures() {
  auto mode = static_cast<cudaStreamCaptureMode>(before_);
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
}

}  // namespace gradwire::cuda
