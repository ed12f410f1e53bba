// Which methods of a spec keep a momentum of their own.
#pragma once

#include <string>

namespace gradwire {

// Name of the first method among the rules of `compressor` that keeps its momentum itself; "" if
// none does, or a rule is wrong, which the aggregator says better.
std::string keeps_momentum(const std::string& compressor);

}  // namespace gradwire
