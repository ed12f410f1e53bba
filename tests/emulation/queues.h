// Streams and events of the emulated devices.
//
// Each stream's work runs in its order after the call that enqueued it has returned, on a thread of
// the stream's meanwhile. When, is left to chance (chance.h): at once, after some microseconds, or
// not before somebody asks for it, which is what shows a wait that is missing: who queries an event
// or waits for a stream asks for what comes before, on streams that are waited for, too, and runs
// what can run. What nobody asks for runs some milliseconds late.
//
// CUDA's default stream is a stream of each device, which waits for those of the device that were
// not made with cudaStreamNonBlocking, and they for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/emulation/chance.h"

struct CUstream_st;

namespace gradwire::emulation {

struct Queue;

// The end of a piece of a stream's work.
struct Point {
  std::weak_ptr<Queue> queue = {};
  std::uint64_t number = 0;  // among the queue's pieces
  bool passed = false;
  std::chrono::steady_clock::time_point at = {};  // when it was
  bool asked = false;                             // whether the host has asked for it
};

struct Piece {
  std::function<void()> work;  // empty: none
  std::shared_ptr<Point> end;
  std::vector<std::shared_ptr<Point>> after;          // of other streams
  std::chrono::steady_clock::time_point begins = {};  // without being asked for
};

struct Queue {
  Queue(int device_, bool apart_, std::uint64_t number)
      : device(device_), apart(apart_), chance(number) {}
  int device;
  bool apart;  // from the default stream
  bool held = false;
  bool ends = false;     // its stream was destroyed
  bool served = false;   // by a thread
  bool busy = false;     // with a piece, which is none of `pieces` any more
  bool blocked = false;  // by it: the piece waits for other streams' work
  bool lazy = false;     // does what it is asked for
  std::deque<Piece> pieces = {};
  std::uint64_t pushed = 0;  // pieces so far
  std::uint64_t wanted = 0;  // the last one that somebody asks for
  std::shared_ptr<Point> last = std::make_shared<Point>(Point{.passed = true});
  Chance chance;
  std::condition_variable changed = {};
};

// How many pieces of work each stream of a capture had then been given.
using Reached = std::map<CUstream_st*, std::size_t>;

// What a captured stream was given, and those that have joined its capture.
struct Recording {
  CUstream_st* origin = nullptr;
  std::map<CUstream_st*, Reached> streams = {};  // what each of them comes after, its own included
  std::vector<std::function<void()>> work = {};
  std::vector<void*> memory = {};    // freed within it: goes with the last graph of it
  std::atomic<bool> failed = false;  // something that cannot be captured was asked for
  bool ended = false;
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
  std::shared_ptr<gradwire::emulation::Point> point = {};        // null: never recorded
  std::weak_ptr<gradwire::emulation::Recording> recording = {};  // where it was, in a capture
  gradwire::emulation::Reached reached = {};                     // then
};

namespace gradwire::emulation {

CUstream_st* make_stream(bool apart);
// Its work still runs, held or not.
void destroy_stream(CUstream_st* stream);
// Null: the default stream of the thread's device. `before` is called in between: at once where the
// stream has nothing to do before this and nothing to wait for, else as the work begins.
void enqueue(CUstream_st* stream, std::function<void()> work, std::function<void()> before = {});
void record(CUevent_st* event, CUstream_st* stream);
void wait_for(CUstream_st* stream, CUevent_st* event);
// Asks for what comes before.
bool has_passed(const CUevent_st* event);
// When it was passed.
std::chrono::steady_clock::time_point time_of(const CUevent_st* event);
// Returns when all that the stream was given has run.
void drain(CUstream_st* stream);
// Returns when all streams have run what they were given, held ones and what waits for them aside,
// or after ten seconds.
void drain_all();

}  // namespace gradwire::emulation
