// minmax and absmax on a CUDA device: payload and values are the host's bits.
#pragma once

#include <memory>
#include <string>

#include "compress/uniform/uniform_grid.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// As make_qsgd_format() (compress/qsgd/qsgd_device.h). Of a grid with spikes or a transform, calls
// take 4 bytes an element of memory while they run.
Result<std::unique_ptr<WireFormat>> make_uniform_format(const std::string& name,
                                                        const UniformGrid& grid,
                                                        const Compressor::Placement& where);

}  // namespace gradwire::cuda
