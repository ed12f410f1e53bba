// Where ranks have divided images into tiles, and have them as a whole again.
#pragma once

#include "trainer/layers/parallel/tile_grid.h"

namespace gradwire {

// x: this rank's tile; y: whole images, equal on all peers. The way back takes the tile of dy, and
// exchanges nothing.
template <typename T>
class TileGather final : public Layer<T> {
 public:
  TileGather(SampleShape tile, const TensorShare& share)
      : tile_(tile), grid_(TileGrid::of(share)) {}

  SampleShape output() const override { return grid_.image_of(tile_); }
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace /*where*/) const override {
    return rows * output().elems();
  }
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    GW_TRY(check_reads(x, {Placement::by_tiles()}));
    return Placement::invariant();
  }
  void forward(const LayerPass<T>& pass) const override {
    gather_tiles<T>(*pass.peers, grid_, pass.rows, tile_, pass.x, pass.scratch.first(pass.y.size()),
                    pass.y);
  }
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override {
    take_area<T>(dy, pass.rows, output(), tile_area(grid_, grid_.tile, tile_), dx);
  }

 private:
  SampleShape tile_;
  TileGrid grid_;
};

}  // namespace gradwire
