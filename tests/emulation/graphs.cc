#include "tests/emulation/graphs.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulation/devices.h"
#include "tests/emulation/queues.h"

struct CUgraph_st {
  std::shared_ptr<gradwire::emulation::Recording> recording;
};
struct CUgraphExec_st {
  std::shared_ptr<gradwire::emulation::Recording> recording;
};

namespace gradwire::emulation {
namespace {

struct Capture {
  std::shared_ptr<Recording> recording;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool apart;  // from the default stream
};
struct Captures {
  std::mutex mutex;
  std::vector<Capture> under_way;
};
Captures& captures_now() {
  static auto& captures = *new Captures();
  return captures;
}

cudaStreamCaptureMode& mode_of_thread() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

}  // namespace

Recording::~Recording() {
  for (void* const data : memory) cudaFreeAsync(data, nullptr);
}

bool spoils_capture(cudaStream_t stream) {
  if (stream == nullptr || !stream->recording) return false;
  stream->recording->failed = true;
  return true;
}

bool spoils_captures_beside() {
  const cudaStreamCaptureMode own = mode_of_thread();
  if (own == cudaStreamCaptureModeRelaxed) return false;
  const auto here = std::this_thread::get_id();
  bool forbidden = false;
  const std::lock_guard lock(captures_now().mutex);
  for (const Capture& capture : captures_now().under_way) {
    const bool mine = capture.thread == here && capture.mode != cudaStreamCaptureModeRelaxed;
    const bool anyones =
        own == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
    if (!mine && !anyones) continue;
    capture.recording->failed = true;
    forbidden = true;
  }
  return forbidden;
}

bool spoils_blocking_captures() {
  bool any = false;
  const std::lock_guard lock(captures_now().mutex);
  for (const Capture& capture : captures_now().under_way) {
    if (capture.apart) continue;
    capture.recording->failed = true;
    any = true;
  }
  return any;
}

bool record_in_capture(CUevent_st* event, CUstream_st* stream) {
  event->recording.reset();
  event->reached.clear();
  if (stream == nullptr || !stream->recording) return false;
  event->recording = stream->recording;
  event->reached = stream->recording->streams[stream];
  event->point = nullptr;
  return true;
}

bool wait_in_capture(CUstream_st* stream, const CUevent_st* event) {
  const auto recording = event->recording.lock();
  if (stream == nullptr || !recording || recording->ended) return false;
  if (stream->recording && stream->recording != recording) return false;
  stream->recording = recording;
  Reached& here = recording->streams[stream];
  for (const auto& [other, count] : event->reached) here[other] = std::max(here[other], count);
  return true;
}

bool is_in_capture(const CUevent_st* event) {
  const auto recording = event->recording.lock();
  return recording != nullptr && !recording->ended;
}

void leave_capture(CUstream_st* stream) {
  if (!stream->recording) return;
  stream->recording->failed = true;
  stream->recording->streams.erase(stream);
}

namespace {

// Ends it for all its streams; whether the first one comes after all that the others were given.
bool end_of_streams(Recording& recording) {
  recording.ended = true;
  const Reached last = recording.streams[recording.origin];
  bool joined = true;
  for (const auto& [stream, reached] : recording.streams) {
    stream->recording = nullptr;
    const auto own = reached.find(stream);
    if (own == reached.end()) continue;
    const auto seen = last.find(stream);
    joined = joined && seen != last.end() && seen->second >= own->second;
  }
  return joined;
}

}  // namespace

}  // namespace gradwire::emulation

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  gradwire::emulation::need_context();
  std::swap(gradwire::emulation::mode_of_thread(), *mode);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  if (stream == nullptr || !stream->recording) return cudaSuccess;
  *status = stream->recording->failed ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (stream == nullptr || stream->recording) return cudaErrorStreamCaptureUnsupported;
  stream->recording = std::make_shared<gradwire::emulation::Recording>();
  stream->recording->origin = stream;
  stream->recording->streams[stream] = {};
  auto& captures = gradwire::emulation::captures_now();
  const std::lock_guard lock(captures.mutex);
  captures.under_way.push_back(
      {stream->recording, mode, std::this_thread::get_id(), stream->queue->apart});
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream == nullptr || !stream->recording) return cudaErrorInvalidValue;
  const auto recording = stream->recording;
  if (recording->origin != stream) return cudaErrorStreamCaptureUnmatched;
  auto& captures = gradwire::emulation::captures_now();
  const std::lock_guard lock(captures.mutex);
  std::erase_if(captures.under_way, [&](const auto& one) { return one.recording == recording; });
  const bool joined = gradwire::emulation::end_of_streams(*recording);
  *graph = recording->failed || !joined ? nullptr : new CUgraph_st{recording};
  if (recording->failed) return cudaErrorStreamCaptureUnsupported;
  return joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->recording};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const auto run = [recording = exec->recording] {
    for (const auto& work : recording->work) work();
  };
  gradwire::emulation::run_on(stream, run);
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
