// Switches of the sources that tests/mutants/mutants.py writes: GRADWIRE_MUTANT=N has the
// N-th wait left out, or the N-th stream replaced by another one of its device.
#pragma once

#include "gradwire/c/values.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"

using cudaStream_t = struct CUstream_st*;

namespace gradwire::mutants {

// Whether it is the one that is switched. The first time in a test that a switch is come to, the
// process writes "NUMBER TEST" to the end of the file that GRADWIRE_MUTANTS_REACHED names, if any.
bool on(int number);

// A stream of the device that waits for no other one and none waits for.
Stream apart(const Stream& stream);
cudaStream_t apart(cudaStream_t stream);

inline Stream other(int number, const Stream& stream) {
  if (stream.device.space != MemorySpace::kCuda) return stream;
  return on(number) ? apart(stream) : stream;
}
inline cudaStream_t other(int number, cudaStream_t stream) {
  return on(number) ? apart(stream) : stream;
}
inline gw_stream other(int number, gw_stream stream) {
  if (stream.space == GW_CUDA && on(number)) {
    stream.native = apart(Stream{{MemorySpace::kCuda, stream.device}, nullptr}).native;
  }
  return stream;
}
inline void* other(int number, void* stream) { return on(number) ? apart(cudaStream_t()) : stream; }

}  // namespace gradwire::mutants
