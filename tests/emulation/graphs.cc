#include "tests/emulation/graphs.h"

#include <functional>
#include <memory>
#include <utility>

#include "tests/emulation/emulated_launch.h"
#include "tests/emulation/queues.h"

struct CUgraph_st {
  std::shared_ptr<gradwire::emulation::Recording> recording;
};
struct CUgraphExec_st {
  std::shared_ptr<gradwire::emulation::Recording> recording;
};

namespace gradwire::emulation {

Recording::~Recording() {
  for (void* const data : memory) cudaFreeAsync(data, nullptr);
}

bool captures(cudaStream_t stream, std::function<void()> work) {
  if (stream == nullptr || !stream->recording) return false;
  enqueue(stream, std::move(work));
  return true;
}

bool spoils_capture(cudaStream_t stream) {
  if (stream == nullptr || !stream->recording) return false;
  stream->recording->failed = true;
  return true;
}

}  // namespace gradwire::emulation

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode own = cudaStreamCaptureModeGlobal;
  std::swap(own, *mode);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  if (stream == nullptr || !stream->recording) return cudaSuccess;
  *status = stream->recording->failed ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->recording) return cudaErrorStreamCaptureUnsupported;
  stream->recording = std::make_shared<gradwire::emulation::Recording>();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream == nullptr || !stream->recording) return cudaErrorInvalidValue;
  const auto recording = std::exchange(stream->recording, nullptr);
  *graph = recording->failed ? nullptr : new CUgraph_st{recording};
  return recording->failed ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->recording};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  gradwire::emulation::enqueue(stream, [recording = exec->recording] {
    for (const auto& work : recording->work) work();
  });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
