// Streams and events of the device that the host plays.
//
// Until run_later() what is enqueued has run when the call returns. From then on a thread of the
// device's own runs it: one stream's work in its order, streams by turns, so that whoever forgets
// to wait sees memory as it was. Kernels still run where they are launched, once their stream is
// through. A stream that CUDA's default stream waits for is drained before work there, which runs
// at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace gradwire::emulation {

struct Passing {
  std::uint64_t recorded = 0;
  std::uint64_t passed = 0;
  std::chrono::steady_clock::time_point at = {};
};

// True when it is done; false: not yet, ask again.
using QueuedWork = std::function<bool()>;

struct Queue {
  int device = 0;
  bool apart = false;  // from the default stream
  bool held = false;
  bool waits = false;  // its next work did not get done, and no event has passed since
  bool ends = false;   // its stream is being destroyed
  bool running = false;
  std::deque<QueuedWork> work = {};
};

// What a captured stream was given.
struct Recording {
  std::vector<std::function<void()>> work = {};
  std::vector<void*> memory = {};    // freed within it: goes with the last graph of it
  std::atomic<bool> failed = false;  // something that cannot be captured was asked for
  ~Recording();
};

}  // namespace gradwire::emulation

struct CUstream_st {
  std::shared_ptr<gradwire::emulation::Queue> queue;
  std::shared_ptr<gradwire::emulation::Recording> recording = {};  // while it is captured
};
struct CUevent_st {
  int device = 0;
  bool timed = true;
  std::shared_ptr<gradwire::emulation::Passing> passing =
      std::make_shared<gradwire::emulation::Passing>();
};

namespace gradwire::emulation {

CUstream_st* make_stream(bool apart);
// Waits for its work, held or not, first.
void destroy_stream(CUstream_st* stream);
// Null: the default stream.
void enqueue(CUstream_st* stream, std::function<void()> work);
void record(CUevent_st* event, CUstream_st* stream);
void wait_for(CUstream_st* stream, CUevent_st* event);
bool has_passed(const CUevent_st* event);
// Returns when all that the stream was given has run.
void drain(CUstream_st* stream);

}  // namespace gradwire::emulation
