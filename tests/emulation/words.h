// Streams that wait for a word of memory, and calls that may wait for a stream.
#pragma once

#include <cstdint>

#include "tests/emulation/queues.h"

namespace gradwire::emulation {

// What the stream is given from now on waits until the word is not 0 when the stream comes to it,
// or set_word() sets it then.
void wait_for_word(CUstream_st* stream, const std::uint32_t* word);
void set_word(std::uint32_t* word);

// Whether a call that may wait for the stream does: drawn by it. None does where the stream waits
// for one that is held, or for another stream's work.
bool draw_wait(CUstream_st* stream);

}  // namespace gradwire::emulation
