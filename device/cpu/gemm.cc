// The library's only use of Eigen outside the trainer. One thread per rank, always.
#include <Eigen/Core>

#include "device/cpu/cpu_ops.h"

namespace gradwire::cpu {
namespace {

template <typename T>
void multiply(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto map = [](ConstTensorView view) {
    return Eigen::Map<const Matrix>(reinterpret_cast<const T*>(view.data()), view.shape().dim[0],
                                    view.shape().dim[1]);
  };
  Eigen::Map<Matrix> out(reinterpret_cast<T*>(c.data()), c.shape().dim[0], c.shape().dim[1]);
  const auto left = map(a);
  const auto right = map(b);
  if (options.transpose_a && options.transpose_b) {
    out.noalias() = left.transpose() * right.transpose();
  } else if (options.transpose_a) {
    out.noalias() = left.transpose() * right;
  } else if (options.transpose_b) {
    out.noalias() = left * right.transpose();
  } else {
    out.noalias() = left * right;
  }
}

}  // namespace

void gemm(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options) {
  if (c.dtype() == DType::kF64) return multiply<double>(a, b, c, options);
  multiply<float>(a, b, c, options);
}

}  // namespace gradwire::cpu
