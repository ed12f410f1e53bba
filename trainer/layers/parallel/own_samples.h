// Where ranks begin to divide a micro-batch by its samples.
// Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv
// 1404.5997, 2014, section 4 (data parallelism of the convolutional layers).
#pragma once

#include "trainer/layers/layer.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// x: all samples, equal on all peers; y: this rank's (equal_part()). Forward exchanges nothing; dx
// is gathered, and nobody reads it where x is the data.
template <typename T>
class OwnSamples final : public Layer<T> {
 public:
  OwnSamples(SampleShape shape, const TensorShare& share) : shape_(shape), share_(share) {}

  SampleShape output() const override { return shape_; }
  SampleRows sample_rows() const override { return SampleRows::kOwn; }
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    GW_TRY(check_reads(x, {Placement::invariant()}));
    return Placement::by_samples();
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;
  void finish_input(const LayerPass<T>& pass, std::span<const T> dy,
                    std::span<T> dx) const override;

 private:
  SampleShape shape_;
  TensorShare share_;
};

}  // namespace gradwire
