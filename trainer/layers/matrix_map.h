// Row-major matrices over borrowed memory, for products by Eigen. One thread per rank: Eigen is
// built without its own threads.
#pragma once

#include <Eigen/Core>
#include <cstdint>

namespace gradwire {

template <typename T>
using RowMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename T>
Eigen::Map<RowMatrix<T>> matrix(T* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols};
}
template <typename T>
Eigen::Map<const RowMatrix<T>> matrix(const T* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols};
}

}  // namespace gradwire
