// thc: a randomised Hadamard transform makes every block look Gaussian; one norm for all ranks and
// a table of 16 whole numbers make codes that add up in the network.
//
//   blocks of `block` elements; what is left is cut into powers of two, the largest first
//   y = transform of a block               compress/hadamard.h, the same signs on all ranks
//   z = y sqrt(B) / N                      N: largest L2 norm of the block over ranks; B elements
//   code = a number of the table, drawn between the two that z's place (z / clip + 1) grid / 2 lies
//          between; z is clamped to [-clip, clip]
//
//   round 0 := norm{blocks}                fp32, combined by max
//   round 1 := words                       compress/shared_scale/lane_words.h of the codes, summed
//
// The table is looked up before sending, so that any all-reduce may add: a lane has the bits of n *
// grid. grid=15 is the uniform table 0 ... 15; grid=31 has the error of 3 % less and a bit more per
// lane. Where the paper has one norm for all of a tensor there is one for each block, because a
// block of the transform knows nothing of the others' energy. Source: Li, Ben Basat, Vargaftik,
// Lao, Xu, Mitzenmacher, Yu, "THC: accelerating distributed deep learning using tensor homomorphic
// compression", NSDI 2024, sections 4 and 5.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method thc_method();

// The 16 numbers of a grid that least squares error asks for, of a Gaussian clamped at 2.154: from
// 0 to `grid`, which is 15 or 31.
std::span<const std::uint8_t, 16> thc_table(int grid);

}  // namespace gradwire
