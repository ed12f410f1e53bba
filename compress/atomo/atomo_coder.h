// One tensor of atomo on one rank.
#pragma once

#include <cstddef>
#include <memory>

#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

inline constexpr std::size_t kAtomCountBytes = 4;
inline constexpr double kMostAtomUnit = 1.001;  // of a unit vector's element, after rounding

// The matrix (a, c) that a shape stands for; r = min(a, c), 0 for tensors that travel dense.
struct AtomShape {
  std::size_t a = 0;
  std::size_t c = 0;
  std::size_t r = 0;
  std::size_t values() const { return a + c + 1; }  // of one atom on the wire
};
AtomShape atom_shape(const Shape& shape);

// kInvalidArgument, naming the call, unless `in_turn`.
Status check_atomo_turn(const char* call, bool in_turn);

// `where` is checked, budget > 0. Layout and errors: atomo.h.
std::unique_ptr<Coder> make_atomo_coder(const Shape& shape, double budget,
                                        const Compressor::Placement& where);

}  // namespace gradwire
