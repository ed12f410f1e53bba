// A row that belongs to every row of a matrix (a bias), there and back, and rows of zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "trainer/layers/layer_kernels.h"

namespace gradwire {

// values: (rows, row.size()), each of whose rows gets `row` added. On `device` where it is not
// null, likewise below.
template <typename T>
void add_row(LayerKernels<T>* device, std::span<const T> row, std::span<T> values) {
  if (device != nullptr) return device->add_row(row, values);
  for (std::size_t at = 0; at < values.size(); at += row.size()) {
    T* const to = values.data() + at;
    for (std::size_t i = 0; i < row.size(); ++i) to[i] += row[i];
  }
}

template <typename T>
void fill_zeros(LayerKernels<T>* device, std::span<T> values) {
  if (device != nullptr) return device->fill_zeros(values);
  std::fill(values.begin(), values.end(), T(0));
}

// sum: (n) of values (rows, n), from the first row to the last; overwritten.
template <typename T>
void sum_rows(LayerKernels<T>* device, std::span<const T> values, std::span<T> sum) {
  if (device != nullptr) return device->sum_rows(values, sum);
  std::copy_n(values.begin(), sum.size(), sum.begin());
  for (std::size_t at = sum.size(); at < values.size(); at += sum.size()) {
    const T* const from = values.data() + at;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += from[i];
  }
}

}  // namespace gradwire
