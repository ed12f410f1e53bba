// One tensor of acpsgd on one rank.
#pragma once

#include <cstdint>
#include <memory>

#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

// `where` is checked. Layout, state and errors: acpsgd.h.
std::unique_ptr<Coder> make_acpsgd_coder(const Shape& shape, std::int64_t rank,
                                         const Compressor::Placement& where);

}  // namespace gradwire
