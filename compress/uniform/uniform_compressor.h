// The Compressor behind minmax and absmax, and what reads their keys.
#pragma once

#include "compress/uniform/uniform_grid.h"
#include "gradwire/registry.h"

namespace gradwire {

// `name` is the method's; symmetric: absmax.
Result<std::unique_ptr<Compressor>> make_uniform(const std::string& name, bool symmetric,
                                                 const Spec& spec);

// The keys that both take.
std::vector<SpecKey> uniform_keys();

}  // namespace gradwire
