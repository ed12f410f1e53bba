// LayerKernels on CUDA. Each source file here has the calls of one kind of layer.
#pragma once

#include "device/cuda/memory.h"
#include "trainer/layers/layer_kernels.h"

namespace gradwire::cuda {

class CudaLayerKernels final : public LayerKernels<float> {
 public:
  using In = std::span<const float>;
  using Out = std::span<float>;
  using Labels = std::span<const std::uint32_t>;

  explicit CudaLayerKernels(const Stream& stream) : stream_(stream) {}
  Stream stream() const override { return stream_; }
  const Status& status() const override { return status_; }

  void product(const MatrixOperand<float>& a, const MatrixOperand<float>& b, float* c) override;
  void add_row(In row, Out matrix) override;
  void sum_rows(In matrix, Out sums) override;
  void copy(In from, Out to) override;
  void fill_zeros(Out values) override;
  void add(In values, Out sum) override;
  void scale(Out values, double factor) override;
  void swap_blocks(std::int64_t outer, std::int64_t inner, In from, Out to) override;
  void relu(In x, Out y) override;
  void relu_back(In x, In dy, Out dx) override;
  void gelu(In x, Out y) override;
  void gelu_back(In x, In dy, Out dx) override;
  void dropout(const DropoutMask& mask, In from, Out to) override;
  void layer_norm(std::int64_t width, In params, In x, Out saved, Out y) override;
  void layer_norm_back(std::int64_t width, In params, In saved, In x, In dy, Out dx) override;
  void layer_norm_params(std::int64_t width, In saved, In x, In dy, Out grads) override;
  void batch_measure(const ChannelShape& shape, In x, Out saved,
                     std::span<double> statistics) override;
  void batch_norm(const ChannelShape& shape, In params, In from, bool running, In x,
                  Out y) override;
  void batch_norm_params(const ChannelShape& shape, In saved, In x, In dy, Out grads) override;
  void batch_norm_back(const ChannelShape& shape, In params, In saved, In x, In dy,
                       Out dx) override;
  void windows(const ConvolutionShape& shape, std::int64_t rows, std::int64_t group, In x,
               Out columns) override;
  void windows_back(const ConvolutionShape& shape, std::int64_t rows, std::int64_t group,
                    In columns, Out dx) override;
  void to_channels(const ConvolutionShape& shape, std::int64_t rows, std::int64_t group, In pixels,
                   In bias, Out y) override;
  void to_pixels(const ConvolutionShape& shape, std::int64_t rows, std::int64_t group, In dy,
                 Out pixels) override;
  void sum_channels(const ChannelShape& shape, In values, Out sums) override;
  void max_pool(const PoolShape& shape, In x, Out y) override;
  void max_pool_back(const PoolShape& shape, In x, In dy, Out dx) override;
  void avg_pool(const PoolShape& shape, In x, Out y) override;
  void avg_pool_back(const PoolShape& shape, In dy, Out dx) override;
  void embed(In tokens, std::int64_t positions, std::int64_t width, In token, In position,
             Out y) override;
  void embed_params(In tokens, std::int64_t width, In dy, Out token, Out position) override;
  void look_up(In tokens, std::int64_t first, std::int64_t width, In token, Out y) override;
  void look_up_params(In tokens, std::int64_t first, std::int64_t width, In dy, Out token) override;
  void attention(const AttentionShape& shape, In x, Out scratch, Out saved, Out y) override;
  void attention_back(const AttentionShape& shape, In x, In saved, In dy, Out scratch,
                      Out dx) override;
  void cross_entropy(In outputs, Labels labels, Out doutputs, std::span<double> by_label,
                     std::span<double> found) override;
  void squared_error(In outputs, Labels labels, Out doutputs, std::span<double> by_label,
                     std::span<double> found) override;
  void class_maxima(const ClassPart<float>& part, Out maxima) override;
  void class_sums(const ClassPart<float>& part, In maxima, std::span<double> sums,
                  std::span<double> said) override;
  void class_losses(const ClassPart<float>& part, In maxima, std::span<const double> sums,
                    std::span<const double> said, Out doutputs, std::span<double> by_label,
                    std::span<double> found) override;

 private:
  // call(), which enqueues on stream_ and returns a Status, unless a call before it failed.
  template <typename Call>
  void enqueue(const Call& call) {
    if (!status_.ok()) return;
    const OnDevice here(stream_.device);
    const Status done = here.status().ok() ? Status(call()) : here.status();
    if (!done.ok()) status_ = done;
  }
  TensorView view(Out values) const {
    return {reinterpret_cast<std::byte*>(values.data()),
            Shape::vector(static_cast<std::int64_t>(values.size())), DType::kF32, stream_.device};
  }
  ConstTensorView view(In values) const {
    return {reinterpret_cast<const std::byte*>(values.data()),
            Shape::vector(static_cast<std::int64_t>(values.size())), DType::kF32, stream_.device};
  }

  Stream stream_;
  Status status_;
};

inline std::int64_t count_of(std::span<const float> values) {
  return static_cast<std::int64_t>(values.size());
}

}  // namespace gradwire::cuda
