// The loops of signsgd's kernels without vector instructions: for fp64, for the ends of fp32
// ranges, and for machines that have none. Contracts in signsgd_kernels.h.
#pragma once

#include <cstddef>
#include <span>

#include "compress/corrected.h"

namespace gradwire::cpu::plain {

template <typename T>
void sum_and_pack(const Corrected<T>& p, double* lanes, std::byte* bits);
template <typename T>
void unpack_signs(const std::byte* bits, std::size_t first, T scale, bool add, std::span<T> dst);
template <typename T>
void take_away(const Corrected<T>& p, const std::byte* bits, std::size_t first, T scale, T* next);

}  // namespace gradwire::cpu::plain
