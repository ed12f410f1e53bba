// Convolution as a matrix product: every window of the image becomes a column.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

struct ConvOptions {
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 1;  // zeros on every side
  std::int64_t groups = 1;   // channels in so many equal parts that do not see one another
  bool bias = true;
};

// Square kernel. x: (rows, in, h, w), weight: (out, in / groups, k, k), bias: (out),
// y: (rows, out, (h + 2 padding - k) / stride + 1, likewise w).
//
//   per sample and group, with columns C of (in / groups k k, windows):   y = W C + b
//   dW = sum over samples of dy C^T    db = sum of dy over samples and positions
//   dx = col2im(W^T dy)
//
// C is built anew in backward: one sample's columns stay in the cache, a batch's would not. A
// device has the windows of several samples as the rows of one matrix: y = C^T W^T.
template <typename T>
class Conv2d final : public Layer<T> {
 public:
  // Requires a kernel that fits into the padded image, and channels that divide by the groups.
  Conv2d(SampleShape in, std::int64_t out_channels, ConvOptions options);
  // Odd kernel, stride 1, padding that keeps height and width.
  Conv2d(SampleShape in, std::int64_t out_channels, std::int64_t kernel)
      : Conv2d(in, out_channels, ConvOptions{kernel, 1, kernel / 2}) {}

  SampleShape output() const override { return output_; }
  ParameterTable parameters() const override;
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace where) const override;
  LayerCost cost() const override {
    const std::int64_t macs = output_.elems() * depth();
    return {macs, macs, macs};
  }
  // Of samples that are here as a whole.
  Result<Placement> placement(const Placement& x,
                              std::span<const ParameterInfo> parameters) const override {
    GW_TRY(check_reads(x, {Placement::invariant(), Placement::by_samples()}));
    GW_TRY(check_whole_parameters(x, parameters));
    return x;
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  std::int64_t in_channels() const { return in_.channels / options_.groups; }  // of one group
  std::int64_t out_channels() const { return output_.channels / options_.groups; }
  std::int64_t depth() const {  // rows of C
    return in_channels() * options_.kernel * options_.kernel;
  }
  std::int64_t plane() const { return output_.height * output_.width; }  // columns of C
  ConvolutionShape on_device() const;
  // Samples whose windows a device has in memory at a time.
  std::int64_t samples_at_once(std::int64_t rows) const;
  // What a device does with samples [begin, begin + rows) of a pass and one group.
  struct Part;
  template <typename Visit>
  void for_each_part(const LayerPass<T>& pass, Visit visit) const;
  void forward_there(const LayerPass<T>& pass) const;
  void backward_params_there(const LayerPass<T>& pass, std::span<const T> dy,
                             std::span<T> grads) const;
  void backward_input_there(const LayerPass<T>& pass, std::span<const T> dy, std::span<T> dx) const;
  // `image`: the channels of one group.
  void im2col(const T* image, T* columns) const;
  void col2im(const T* columns, T* image) const;

  SampleShape in_;
  ConvOptions options_;
  SampleShape output_;
};

}  // namespace gradwire
