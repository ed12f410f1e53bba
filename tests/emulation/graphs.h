// CUDA graphs of the device that the host plays: what a captured stream was given, done once more
// at each launch. Of what CUDA captures this has kernels, copies, memory, and events, by which
// other streams join the capture and are joined again; all of it is done in the order of the calls.
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

// The event as a point of the capture of the stream; false where that is not captured.
bool record_in_capture(CUevent_st* event, CUstream_st* stream);
// Has the stream come after an event of a capture, which it joins; false for other events, and
// where the capture has ended.
bool wait_in_capture(CUstream_st* stream, const CUevent_st* event);
// Whether the event is a point of a capture, and none that has a time.
bool is_in_capture(const CUevent_st* event);
// The stream is no more.
void leave_capture(CUstream_st* stream);

}  // namespace gradwire::emulation
