// The mean of every channel of images that ranks divide into tiles.
#pragma once

#include "trainer/layers/avg_pool2d.h"
#include "trainer/layers/parallel/tile_grid.h"

namespace gradwire {

// x: (rows, tile); y: (rows, channels), equal on all peers: the mean of their means, whose tiles
// are of one size. The way back exchanges nothing.
template <typename T>
class TileMean final : public Layer<T> {
 public:
  TileMean(SampleShape tile, const TensorShare& share)
      : mean_(AvgPool2d<T>::global(tile)), share_(share_of(tile, share)) {}

  SampleShape output() const override { return mean_.output(); }
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    GW_TRY(check_reads(x, {Placement::by_tiles()}));
    return Placement::invariant();
  }
  void forward(const LayerPass<T>& pass) const override {
    mean_.forward(pass);
    for (T& y : pass.y) y *= share_;
    pass.peers->start_sum(pass.y);
    pass.peers->await();
  }
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override {
    mean_.backward_input(pass, dy, dx);
    for (T& x : dx) x *= share_;
  }

 private:
  static T share_of(SampleShape tile, const TensorShare& share) {
    return static_cast<T>(tile.elems()) /
           static_cast<T>(TileGrid::of(share).image_of(tile).elems());
  }

  AvgPool2d<T> mean_;
  T share_;  // of a tile in the image
};

}  // namespace gradwire
