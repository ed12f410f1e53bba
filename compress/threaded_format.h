// Elementwise methods on several threads: a slice is cut at fixed places, whatever the number of
// threads, and each part packed or unpacked by whoever is free.
#pragma once

#include <memory>

#include "base/workers.h"
#include "gradwire/compressor.h"
#include "gradwire/status.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// method.open_slices() whose calls run on `workers` where WireFormat::seam() allows: the same
// bytes, values and errors. Null workers, or one thread: as it is. Workers are lent.
Result<std::unique_ptr<WireFormat>> open_slices_on(Workers* workers, const Compressor& method,
                                                   const Shape& shape,
                                                   const Compressor::Placement& where);

// method.open(), likewise: on several threads for elementwise methods that are gathered.
Result<std::unique_ptr<Coder>> open_on(Workers* workers, const Compressor& method,
                                       const Shape& shape, const Compressor::Placement& where);

}  // namespace gradwire
