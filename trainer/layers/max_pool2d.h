// The maximum of every square window.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

// Of an image that ranks divide into tiles: the axes along which it is divided.
struct TiledAxes {
  bool height = true;
  bool width = true;
};

// x: (rows, channels, h, w) -> y: (rows, channels, (h - window) / stride + 1, likewise w): what the
// last whole window does not reach is left out. The gradient goes to the first of equal maxima, in
// row order. NaN wins.
template <typename T>
class MaxPool2d final : public Layer<T> {
 public:
  // Requires an image of at least one window. `tiled`: of tiles, how they lie; for whole images
  // nothing.
  explicit MaxPool2d(SampleShape in, std::int64_t window = 2, std::int64_t stride = 2,
                     const TiledAxes& tiled = {})
      : in_(in), window_(window), stride_(stride), tiled_(tiled) {}

  SampleShape output() const override {
    return {in_.channels, (in_.height - window_) / stride_ + 1,
            (in_.width - window_) / stride_ + 1};
  }
  // Of a tile where windows that lie in it are those of the whole image.
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    if (x == Placement::by_tiles() && fits_tiles()) return x;
    GW_TRY(check_reads(x, {Placement::invariant(), Placement::by_samples()}));
    return x;
  }
  // Whether no window lies over the edge of tiles of this size, next to each other.
  bool fits_tiles() const {
    return fits_axis(tiled_.height, in_.height) && fits_axis(tiled_.width, in_.width);
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  bool fits_axis(bool tiled, std::int64_t size) const {
    return !tiled || (window_ <= stride_ && size % stride_ == 0);
  }
  PoolShape on_device(std::int64_t rows) const;
  template <typename Visit>
  void for_each_window(std::int64_t rows, const T* x, Visit visit) const;

  SampleShape in_;
  std::int64_t window_;
  std::int64_t stride_;
  TiledAxes tiled_;
};

}  // namespace gradwire
