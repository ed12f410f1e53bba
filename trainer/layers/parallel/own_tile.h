// Where ranks begin to divide images into tiles.
// Source: Gholami, Azad, Jin, Keutzer, Buluc, "Integrated model, batch, and domain parallelism in
// training neural networks", SPAA 2018 (domain parallelism).
#pragma once

#include "trainer/layers/parallel/tile_grid.h"

namespace gradwire {

// x: whole images, equal on all peers; y: this rank's tile of each. Forward exchanges nothing; dx
// is gathered, and nobody reads it where x is the data.
template <typename T>
class OwnTile final : public Layer<T> {
 public:
  // Requires an image that the grid divides evenly.
  OwnTile(SampleShape image, const TensorShare& share)
      : image_(image), grid_(TileGrid::of(share)) {}

  SampleShape output() const override { return grid_.tile_of(image_); }
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace /*where*/) const override {
    return rows * image_.elems();
  }
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    GW_TRY(check_reads(x, {Placement::invariant()}));
    return Placement::by_tiles();
  }
  void forward(const LayerPass<T>& pass) const override {
    take_area<T>(pass.x, pass.rows, image_, tile_area(grid_, grid_.tile, output()), pass.y);
  }
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override {
    gather_tiles<T>(*pass.peers, grid_, pass.rows, output(), dy, pass.scratch.first(dx.size()), dx);
  }

 private:
  SampleShape image_;
  TileGrid grid_;
};

}  // namespace gradwire
