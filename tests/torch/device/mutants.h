// What tests/mutants/mutants.py switches in the adapter to PyTorch.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

#include "tests/emulation/mutants.h"

namespace gradwire::mutants {

// Another stream of its device.
inline c10::Stream apart(const c10::Stream& stream) {
  const c10::impl::VirtualGuardImpl guard(stream.device_type());
  const c10::Stream made = guard.getNewStream(stream.device(), 0);
  return made == stream ? guard.getNewStream(stream.device(), 0) : made;
}

inline c10::Stream other(int number, const c10::Stream& stream) {
  return on(number) ? apart(stream) : stream;
}
inline std::optional<c10::Stream> other(int number, const std::optional<c10::Stream>& stream) {
  return stream ? std::optional(other(number, *stream)) : stream;
}

}  // namespace gradwire::mutants
