// The host's memory that PyTorch takes for pinned.
#pragma once

#include <c10/core/Allocator.h>

namespace gradwire::emulated_torch {

// Copies from it have been read by the host when they return, so that any memory will do.
c10::Allocator* pinned_allocator();
// Whether a block of the allocator begins there.
bool is_pinned(const void* data);

}  // namespace gradwire::emulated_torch
