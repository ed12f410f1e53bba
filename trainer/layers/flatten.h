// An image as a vector of features: the shape changes, the values and their order do not.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

template <typename T>
class Flatten final : public Layer<T> {
 public:
  explicit Flatten(SampleShape in) : in_(in) {}

  SampleShape output() const override { return {in_.elems(), 1, 1}; }
  // Of samples that are here as a whole.
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    GW_TRY(check_reads(x, {Placement::invariant(), Placement::by_samples()}));
    return x;
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  SampleShape in_;
};

}  // namespace gradwire
