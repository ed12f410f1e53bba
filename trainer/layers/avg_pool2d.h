// The mean of every square window, windows side by side; or of a whole plane.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

// x: (rows, channels, h, w) -> y: (rows, channels, h / window_h, w / window_w), rounded down: what
// is left over takes no part. Each sum runs over the window's lines from the first to the last.
template <typename T>
class AvgPool2d final : public Layer<T> {
 public:
  // Requires an image of at least one window.
  AvgPool2d(SampleShape in, std::int64_t window) : AvgPool2d(in, window, window) {}
  // One mean per channel, whatever the image's size.
  static AvgPool2d global(SampleShape in) { return {in, in.height, in.width}; }

  SampleShape output() const override {
    return {in_.channels, in_.height / window_h_, in_.width / window_w_};
  }
  // Of samples that are here as a whole.
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    GW_TRY(check_reads(x, {Placement::invariant(), Placement::by_samples()}));
    return x;
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  PoolShape on_device(std::int64_t rows) const;
  AvgPool2d(SampleShape in, std::int64_t window_h, std::int64_t window_w)
      : in_(in), window_h_(window_h), window_w_(window_w) {}
  // Calls visit(output index, input index of a line's first value) for every line of every window.
  template <typename Visit>
  void for_each_line(std::int64_t rows, Visit visit) const;

  SampleShape in_;
  std::int64_t window_h_;
  std::int64_t window_w_;
};

}  // namespace gradwire
