// Streams that wait for a word of memory, by what the emulator offers anyway: a stream of their own
// that is held until the word is set, and an event on it.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "device/cuda/driver.h"
#include "tests/emulation/devices.h"
#include "tests/emulation/emulated_device.h"
#include "tests/emulation/queues.h"

namespace gradwire::emulation {
namespace {

struct WordWait {
  CUstream_st* held;
  CUevent_st* event;
};

struct WordWaits {
  std::mutex mutex;
  std::multimap<const std::uint32_t*, WordWait> of;
};
// Left to the end of the process, as streams that wait there.
WordWaits& word_waits() {
  static auto* const waits = new WordWaits;
  return *waits;
}

}  // namespace
}  // namespace gradwire::emulation

namespace gradwire::cuda {

bool wait_for_word(void* stream, const std::uint32_t* word) {
  auto* const waiting = static_cast<CUstream_st*>(stream);
  if (waiting == nullptr) return false;  // work there runs when it is enqueued
  emulation::WordWait wait{emulation::make_stream(true),
                           new CUevent_st{.device = emulation::current_device()}};
  emulation::hold(wait.held);
  emulation::record(wait.event, wait.held);
  emulation::wait_for(waiting, wait.event);
  const std::lock_guard lock(emulation::word_waits().mutex);
  emulation::word_waits().of.emplace(word, wait);
  return true;
}

void set_word(std::uint32_t* word) {
  std::multimap<const std::uint32_t*, emulation::WordWait> set;
  {
    const std::lock_guard lock(emulation::word_waits().mutex);
    *word = 1;
    while (const auto node = emulation::word_waits().of.extract(word)) {
      set.emplace(node.key(), node.mapped());
    }
  }
  for (const auto& [key, wait] : set) {
    emulation::release(wait.held);
    emulation::destroy_stream(wait.held);
    delete wait.event;
  }
}

}  // namespace gradwire::cuda
