// Which methods of a spec keep a momentum of their own, and where a checkpoint has the optimizer's.
#pragma once

#include <string>
#include <string_view>

namespace gradwire {

// Name of the first method among the rules of `compressor` that keeps its momentum itself; "" if
// none does, or a rule is wrong, which the aggregator says better.
std::string keeps_momentum(const std::string& compressor);

// Whether a checkpoint's tensor is a momentum of the optimizer, or of a worker beside it:
// "optimizer/fc1.weight.momentum", "rank-0/mode/direction".
bool is_momentum(std::string_view tensor);

}  // namespace gradwire
