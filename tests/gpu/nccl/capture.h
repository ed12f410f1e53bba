// A fixed exchange as a CUDA graph: what is captured once does, at every launch, to the gradients
// that are there then, what the same calls do without a graph.
#pragma once

#include <string>

#include "device/cuda/stream.h"
#include "gradwire/communicator.h"

namespace gradwire::gpu {

// Captures, and owns, what `enqueue` puts on a stream of its own.
class CapturedWork {
 public:
  template <typename Enqueue>
  explicit CapturedWork(const Enqueue& enqueue) {
    says(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    says(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    const Status status = enqueue(stream());
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    if (!status.ok()) error_ = std::string(status.message());
    if (error_.empty()) says(ended);
    if (error_.empty()) says(cudaGraphInstantiate(&exec_, graph, 0));
    if (graph != nullptr) says(cudaGraphDestroy(graph));
  }
  ~CapturedWork() {
    if (exec_ != nullptr) (void)cudaGraphExecDestroy(exec_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;

  // Does it all once, and waits for it.
  void run() {
    if (error_.empty()) says(cudaGraphLaunch(exec_, stream_));
    if (error_.empty()) says(cudaStreamSynchronize(stream_));
  }
  Stream stream() const { return {{MemorySpace::kCuda, 0}, stream_}; }
  // The first one; empty: none.
  const std::string& error() const { return error_; }

 private:
  void says(cudaError_t error) {
    if (error_.empty() && error != cudaSuccess) error_ = cudaGetErrorString(error);
  }
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
  std::string error_;
};

// Of every rank of `world`: empty where all holds, else what does not.
std::string check_captured_sums(Communicator& world);
std::string check_captured_maxima(Communicator& world);
std::string check_captured_payloads(Communicator& world);
std::string check_what_no_graph_takes(Communicator& world);

}  // namespace gradwire::gpu
