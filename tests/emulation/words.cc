// Streams that wait for a word of memory.
#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/driver.h"
#include "tests/emulation/emulated_device.h"
#include "tests/emulation/words.h"

namespace gradwire::cuda {

bool wait_for_word(void* stream, const std::uint32_t* word) {
  if (emulation::word_waits_are_refused()) return false;  // as a driver without the call
  emulation::wait_for_word(static_cast<CUstream_st*>(stream), word);
  return true;
}

void set_word(std::uint32_t* word) { emulation::set_word(word); }

}  // namespace gradwire::cuda
