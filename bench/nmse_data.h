// The synthetic gradients of nmse.h.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/nmse.h"

namespace gradwire {

// [0] is s alone; [1 + i] is s + n_i. The same for the same (data, seed), whatever the ranks.
std::vector<std::vector<float>> nmse_gradients(NmseData data, std::uint64_t seed,
                                               std::int64_t elements, int ranks);

}  // namespace gradwire
