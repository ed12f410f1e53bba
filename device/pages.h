// Memory pages that are given back while their addresses stay.
#pragma once

#include <cstddef>

#include "gradwire/tensor.h"

namespace gradwire {

// The whole pages inside `bytes`, host memory of this process that no file backs: their contents
// are lost, they take no memory until they are written again, and read as zeros. Returns how many
// bytes were given back; 0 on a system that cannot. Parts of pages at both ends stay as they are.
std::size_t drop_pages(ByteSpan bytes);

// As drop_pages(), for what is written again soon: the system takes the pages when it wants memory,
// and until they are written again each holds what it held, or zeros. Writing to them before costs
// no page fault.
std::size_t offer_pages(ByteSpan bytes);

// Of `bytes`, what takes memory now, page by page.
std::size_t resident_bytes(ConstByteSpan bytes);

}  // namespace gradwire
