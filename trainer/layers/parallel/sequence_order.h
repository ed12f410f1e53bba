// Sequences whose positions ranks divide: a sample is whole in one order, and the ranks' parts of
// all samples stand behind each other in the other one, as collectives want them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "trainer/layers/layer_kernels.h"

namespace gradwire {

// (rows, parts, n) to (parts, rows, n): n elements are a rank's part of a sample. On `device` where
// it is not null, likewise below.
template <typename T>
void to_rank_order(LayerKernels<T>* device, std::span<const T> by_sample, std::int64_t rows,
                   std::int64_t parts, std::span<T> by_rank) {
  if (device != nullptr) return device->swap_blocks(rows, parts, by_sample, by_rank);
  const std::int64_t n = static_cast<std::int64_t>(by_sample.size()) / rows / parts;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t part = 0; part < parts; ++part) {
      std::copy_n(by_sample.begin() + (row * parts + part) * n, n,
                  by_rank.begin() + (part * rows + row) * n);
    }
  }
}

// The way back: (parts, rows, n) to (rows, parts, n).
template <typename T>
void to_sample_order(LayerKernels<T>* device, std::span<const T> by_rank, std::int64_t rows,
                     std::int64_t parts, std::span<T> by_sample) {
  to_rank_order(device, by_rank, parts, rows, by_sample);
}

}  // namespace gradwire
