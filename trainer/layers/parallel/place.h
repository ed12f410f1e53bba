// What layers say about placements (trainer/placement.h).
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>

#include "gradwire/status.h"
#include "trainer/parameters.h"
#include "trainer/placement.h"

namespace gradwire {

// kInvalidArgument unless x lies in one of the ways that a layer reads.
inline Status check_reads(const Placement& x, std::initializer_list<Placement> reads) {
  if (std::ranges::find(reads, x) != reads.end()) return {};
  std::string wanted;
  for (const Placement& one : reads) wanted += (wanted.empty() ? "" : " or ") + to_string(one);
  return {Code::kInvalidArgument, "it reads " + to_string(x) + " (expected " + wanted + ")"};
}

// Of parameters that a rank has all of, whose gradients are sums over the elements of a value that
// lies like `over`: where the data is divided they are parts of a sum over ranks, and say so; else
// they are the same on all ranks, or nobody's.
inline Status check_whole_parameters(const Placement& over,
                                     std::span<const ParameterInfo> parameters) {
  const bool parts = over.divides_data();
  for (const ParameterInfo& info : parameters) {
    if (info.box && !info.box->is_whole()) continue;
    if (!parts && over != Placement::invariant()) {
      return {Code::kInvalidArgument, "its parameter '" + info.name + "' is here as a whole, and " +
                                          to_string(over) + " (expected a part of it)"};
    }
    if (info.summed == parts) continue;
    return {Code::kInvalidArgument,
            "the gradient of its parameter '" + info.name + "' is " + (parts ? "not " : "") +
                "added up over ranks (expected " +
                (parts ? "a sum: each has an addend of it" : "none: all have the same") + ")"};
  }
  return {};
}

}  // namespace gradwire
