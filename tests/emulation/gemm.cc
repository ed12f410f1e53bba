// gemm() of the device that the host plays, once the stream has come to it: the host's, but summed
// in an order of its own, as a card's library does it. The sum over the inner dimension is cut into
// stretches, of which the last is made first, so results differ from the host's by rounding: a test
// that wanted the host's bits of a product, or closer than rounding lets, would fail here as on a
// card.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "device/cpu/cpu_ops.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/cuda_status.h"
#include "device/cuda/memory.h"
#include "tests/emulation/emulated_launch.h"
#include "tests/emulation/queues.h"

namespace gradwire::cuda {
namespace {

constexpr std::int64_t kStretches = 4;

// Of a matrix those rows, or columns, that a stretch of the inner dimension multiplies.
class InnerPart {
 public:
  InnerPart(ConstTensorView whole, bool inner_is_rows, std::int64_t first, std::int64_t count) {
    const std::int64_t rows = whole.shape().dim[0];
    const std::int64_t cols = whole.shape().dim[1];
    const auto width = static_cast<std::int64_t>(size_of(whole.dtype()));
    const std::byte* from = whole.data() + (inner_is_rows ? first * cols : first) * width;
    const std::int64_t lines = inner_is_rows ? count : rows;
    const std::int64_t line = (inner_is_rows ? cols : count) * width;
    data_.resize(static_cast<std::size_t>(lines * line));
    for (std::int64_t i = 0; i < lines; ++i) {
      std::memcpy(data_.data() + i * line, from + i * cols * width, static_cast<std::size_t>(line));
    }
    view_ = {data_.data(), Shape::matrix(lines, line / width), whole.dtype()};
  }
  ConstTensorView view() const { return view_; }

 private:
  std::vector<std::byte> data_;
  ConstTensorView view_;
};

void multiply(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options) {
  const std::int64_t inner = options.transpose_a ? a.shape().dim[0] : a.shape().dim[1];
  if (c.empty() || inner <= 1) return cpu::gemm(a, b, c, options);
  std::vector<std::byte> product(c.bytes().size());
  const TensorView more(product.data(), c.shape(), c.dtype());
  const std::int64_t length = (inner + kStretches - 1) / kStretches;
  for (std::int64_t end = inner; end > 0; end = (end - 1) / length * length) {
    const std::int64_t first = (end - 1) / length * length;
    const InnerPart left(a, options.transpose_a, first, end - first);
    const InnerPart right(b, !options.transpose_b, first, end - first);
    const bool last = end == inner;  // the first to be made
    cpu::gemm(left.view(), right.view(), last ? c : more, options);
    if (!last) cpu::reduce(ReduceOp::kSum, more, c);
  }
}

TensorView as_of_host(TensorView tensor) { return {tensor.data(), tensor.shape(), tensor.dtype()}; }

}  // namespace

Status gemm(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options,
            const Stream& stream) {
  GW_CUDA(emulation::begin_launch(native(stream)));
  emulation::enqueue(native(stream), [=] { multiply(a, b, as_of_host(c), options); });
  return {};
}

}  // namespace gradwire::cuda
