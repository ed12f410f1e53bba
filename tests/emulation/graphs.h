// CUDA graphs of the device that the host plays: what a captured stream was given, done once more
// at each launch. Of what CUDA captures this has kernels, copies and memory, not events.
#pragma once

#include <cuda_runtime_api.h>

namespace gradwire::emulation {

// Whether the stream is captured, in which case the capture has failed from now on: what was asked
// for cannot be part of one.
bool spoils_capture(cudaStream_t stream);
// What might have to wait for a capture that goes on somewhere, if this thread's mode does not say
// that it knows better: all captures that forbid it have failed from now on.
bool spoils_captures_beside();
// What comes to the default stream: all captures of streams that wait for it have failed from now
// on, whatever they or this thread say. Whether there are any.
bool spoils_blocking_captures();

}  // namespace gradwire::emulation
