// Layers that work element by element, and the sums that go with products.
#include <cmath>
#include <numbers>

#include "device/ops.h"
#include "trainer/cuda/cuda_kernels.h"
#include "trainer/cuda/cuda_layer_kernels.h"
#include "trainer/cuda/each.h"
#include "trainer/cuda/ordered_sums.h"

namespace gradwire::cuda {
namespace {

struct AddRow {
  const float* row;
  std::int64_t cols;
  float* matrix;
  GW_DEVICE void operator()(std::int64_t i) const { matrix[i] += row[i % cols]; }
};

// A block for 32 neighbouring columns: 16 threads to each, which take rows in turn; their sums are
// added from the first thread to the last.
struct SumRows {
  static constexpr unsigned kColumns = 32;
  static constexpr unsigned kTurns = 16;
  static constexpr unsigned kThreads = kColumns * kTurns;
  struct Shared {
    float sums[kTurns][kColumns];
  };

  const float* matrix;
  std::int64_t rows;
  std::int64_t cols;
  float* sums;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const unsigned turn = block.warp();
    const std::int64_t col = block.block() * kColumns + block.lane();
    float sum = 0;
    for (std::int64_t r = turn; col < cols && r < rows; r += kTurns) sum += matrix[r * cols + col];
    shared.sums[turn][block.lane()] = sum;
    block.barrier();
    if (turn > 0 || col >= cols) return;
    for (unsigned other = 1; other < kTurns; ++other) sum += shared.sums[other][block.lane()];
    sums[col] = sum;
  }
};

struct SwapBlocks {
  std::int64_t outer;
  std::int64_t inner;
  std::int64_t elems;  // of a block
  const float* from;
  float* to;
  GW_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t block = i / elems;  // of `to`
    const std::int64_t source = block % outer * inner + block / outer;
    to[i] = from[source * elems + i % elems];
  }
};

struct Zeros {
  float* values;
  GW_DEVICE void operator()(std::int64_t i) const { values[i] = 0; }
};

struct ReluForward {
  const float* x;
  float* y;
  GW_DEVICE void operator()(std::int64_t i) const { y[i] = x[i] < 0 ? 0 : x[i]; }
};
struct ReluBack {
  const float* x;
  const float* dy;
  float* dx;
  GW_DEVICE void operator()(std::int64_t i) const { dx[i] = x[i] <= 0 ? 0 : dy[i]; }
};

GW_DEVICE float phi_below(float x) {
  return 0.5F * (1.0F + std::erf(x * (1.0F / std::numbers::sqrt2_v<float>)));
}
struct GeluForward {
  const float* x;
  float* y;
  GW_DEVICE void operator()(std::int64_t i) const { y[i] = x[i] * phi_below(x[i]); }
};
struct GeluBack {
  const float* x;
  const float* dy;
  float* dx;
  GW_DEVICE void operator()(std::int64_t i) const {
    constexpr float kPeak = std::numbers::inv_sqrtpi_v<float> / std::numbers::sqrt2_v<float>;
    const float at = x[i];
    dx[i] = dy[i] * (phi_below(at) + at * kPeak * std::exp(-0.5F * at * at));
  }
};

// Four elements, whose draws are one block, to a thread.
struct Drop {
  DropoutMask mask;
  const float* from;
  float* to;
  std::int64_t count;
  GW_DEVICE void operator()(std::int64_t i) const {
    const std::uint64_t number = mask.first / 4 + static_cast<std::uint64_t>(i);
    const auto words = mask.draws.block(number);
    for (unsigned k = 0; k < 4; ++k) {
      const auto at = static_cast<std::int64_t>(number * 4 + k - mask.first);
      if (at < 0 || at >= count) continue;
      to[at] = words[k] < mask.dropped ? 0 : from[at] * mask.scale;
    }
  }
};

}  // namespace

std::unique_ptr<LayerKernels<float>> make_layers(const Stream& stream) {
  return std::make_unique<CudaLayerKernels>(stream);
}

void CudaLayerKernels::product(const MatrixOperand<float>& a, const MatrixOperand<float>& b,
                               float* c) {
  const auto operand = [&](const MatrixOperand<float>& m) {
    return ConstTensorView(reinterpret_cast<const std::byte*>(m.data),
                           Shape::matrix(m.rows, m.cols), DType::kF32, stream_.device);
  };
  const TensorView out(
      reinterpret_cast<std::byte*>(c),
      Shape::matrix(a.transposed ? a.cols : a.rows, b.transposed ? b.rows : b.cols), DType::kF32,
      stream_.device);
  enqueue([&] { return gemm(operand(a), operand(b), out, {a.transposed, b.transposed}, stream_); });
}

void CudaLayerKernels::add_row(In row, Out matrix) {
  enqueue([&] {
    return for_each("add_row", count_of(matrix), AddRow{row.data(), count_of(row), matrix.data()},
                    stream_);
  });
}

void CudaLayerKernels::sum_rows(In matrix, Out sums) {
  const std::int64_t cols = count_of(sums);
  enqueue([&] {
    return launch("sum_rows", SumRows{matrix.data(), count_of(matrix) / cols, cols, sums.data()},
                  blocks_for(cols, SumRows::kColumns), stream_);
  });
}

void CudaLayerKernels::copy(In from, Out to) {
  enqueue([&] {
    return copy_bytes(view(from).bytes(), stream_.device, view(to).bytes(), stream_.device,
                      stream_);
  });
}

void CudaLayerKernels::fill_zeros(Out values) {
  enqueue([&] { return for_each("zeros", count_of(values), Zeros{values.data()}, stream_); });
}

void CudaLayerKernels::add(In values, Out sum) {
  enqueue([&] { return gradwire::reduce(ReduceOp::kSum, view(values), view(sum), stream_); });
}

void CudaLayerKernels::scale(Out values, double factor) {
  enqueue([&] { return gradwire::scale(view(values), factor, stream_); });
}

void CudaLayerKernels::swap_blocks(std::int64_t outer, std::int64_t inner, In from, Out to) {
  const SwapBlocks each{outer, inner, count_of(from) / outer / inner, from.data(), to.data()};
  enqueue([&] { return for_each("swap_blocks", count_of(from), each, stream_); });
}

void CudaLayerKernels::relu(In x, Out y) {
  enqueue([&] { return for_each("relu", count_of(x), ReluForward{x.data(), y.data()}, stream_); });
}

void CudaLayerKernels::relu_back(In x, In dy, Out dx) {
  enqueue([&] {
    return for_each("relu_back", count_of(dy), ReluBack{x.data(), dy.data(), dx.data()}, stream_);
  });
}

void CudaLayerKernels::gelu(In x, Out y) {
  enqueue([&] { return for_each("gelu", count_of(x), GeluForward{x.data(), y.data()}, stream_); });
}

void CudaLayerKernels::gelu_back(In x, In dy, Out dx) {
  enqueue([&] {
    return for_each("gelu_back", count_of(dy), GeluBack{x.data(), dy.data(), dx.data()}, stream_);
  });
}

void CudaLayerKernels::dropout(const DropoutMask& mask, In from, Out to) {
  const std::int64_t count = count_of(from);
  enqueue([&] {
    return for_each("dropout", count / 4 + 2, Drop{mask, from.data(), to.data(), count}, stream_);
  });
}

}  // namespace gradwire::cuda
