// Memory of the emulated devices, which the host may not touch, and pinned memory.
//
// Where the processor has protection keys for pages (pkeys(7): PKU of x86), device memory has a key
// of its own, which threads that run a stream's work may use and others may not: an access of the
// host ends the program with a message. Elsewhere it goes unnoticed, and guards_device_memory()
// says so.
//
// Fresh memory, and memory that was freed, is full of kPoison: as a floating number of any type a
// NaN, as an integer -1. Blocks of a mebibyte and more have pages of their own, with an
// inaccessible one behind them, and are unmapped when they are freed; behind smaller blocks there
// is a margin, and what has been written there is found when the block is freed.
#pragma once

#include <cstddef>

namespace gradwire::emulation {

inline constexpr int kPoison = 0xff;

enum class Owner : unsigned char { kDevice, kHost };

// 256-byte aligned; null where the system has no more. Any thread.
void* take_memory(std::size_t bytes, Owner owner);
// Ends the program where something was written behind the block. Any thread.
void free_memory(void* data);

// From now on this thread may touch device memory, as one that runs a stream's work.
void let_thread_touch_devices();

// While it lives this thread may touch device memory.
class TouchDevices {
 public:
  TouchDevices();
  ~TouchDevices();
  TouchDevices(const TouchDevices&) = delete;
  TouchDevices& operator=(const TouchDevices&) = delete;

 private:
  int rights_;  // before
};

}  // namespace gradwire::emulation
