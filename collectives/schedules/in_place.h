// What was made for an input of its own runs in place.
#pragma once

#include <cstdint>

#include "gradwire/schedule.h"

namespace gradwire {

// Elements [in_begin, in_begin + elems) of kIn are the memory of kOut's from out_begin on.
struct SharedElems {
  std::int64_t elems = 0;
  std::int64_t in_begin = 0;
  std::int64_t out_begin = 0;
};

// A schedule without in_place, for a kIn and kOut that share memory. Where it would overwrite input
// that it reads later, that part of the output grows in scratch memory and is copied at the end.
// Requires that cells of kIn and of kOut in the shared memory are equal or disjoint there.
Schedule in_place(const Schedule& schedule, const SharedElems& shared);

}  // namespace gradwire
