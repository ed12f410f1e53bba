// The coder of votes that leave blocks of zeros out; payloads as in signum.h.
#pragma once

#include <memory>
#include <string>

#include "gradwire/compressor.h"

namespace gradwire {

// beta 0: the vote is over the gradients themselves and nothing is kept between steps. `name` is
// the method's, for errors. kUnsupported from 2^15 ranks on.
Result<std::unique_ptr<Coder>> make_signum_coder(const std::string& name, double beta,
                                                 const Shape& shape,
                                                 const Compressor::Placement& where);

}  // namespace gradwire
