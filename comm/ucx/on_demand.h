// When the UCX libraries come into the process.
#pragma once

#include "gradwire/status.h"

namespace gradwire::ucx {

// Ok once they are there. A program that links them has them from its start; libgradwire.so has its
// own definition of this, which loads them (loaded_ucx.cc), and of UCX's functions, which pass
// their calls on. kUnsupported names the library, what the loader said, and the package; or says
// that this build has no UCX.
Status load();

}  // namespace gradwire::ucx
