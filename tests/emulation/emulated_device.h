// A CUDA device that is the host, for tests: what can be set and asked of it.
#pragma once

#include <cstddef>

namespace gradwire::emulation {

// How many allocations live.
std::size_t allocations();
// Those after the next `count` fail as on a device whose memory is out.
inline constexpr std::size_t kEndless = ~std::size_t{0};
void refuse_allocations_after(std::size_t count);

}  // namespace gradwire::emulation
