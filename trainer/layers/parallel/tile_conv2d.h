// A convolution of images that ranks divide into tiles.
// Source: Gholami, Azad, Jin, Keutzer, Buluc, "Integrated model, batch, and domain parallelism in
// training neural networks", SPAA 2018 (domain parallelism); Dryden, Maruyama, Benson, Moon, Snir,
// Van Essen, "Improving strong-scaling of CNN training by exploiting finer-grained parallelism",
// IPDPS 2019.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "trainer/layers/conv2d.h"
#include "trainer/layers/parallel/tile_grid.h"

namespace gradwire {

// As Conv2d on the whole image, of which x and y are this rank's tiles. What windows read beyond a
// tile's edges, its halo, comes from up to eight neighbours: with stride 1, a kernel of k and a
// padding of r = (k - 1) / 2, r lines on every side that has one, and r^2 values of a corner. Where
// the image ends there are zeros.
//
// Forward sends and receives the halo, which is kept, so that backward_params() exchanges nothing.
// backward_input() starts the way back of the halo's derivatives to whose values they are,
// finish_input() adds up what has come. Gradients of the parameters are of this rank's windows.
template <typename T>
class TileConv2d final : public Layer<T> {
 public:
  // kInvalidArgument says why tiles of this size would not be the whole image's convolution: where
  // it is divided, an axis' outputs must be its inputs over the stride, in each tile, and a halo no
  // more than a tile.
  static Status check(SampleShape tile, const ConvOptions& options, const TensorShare& share);
  // Requires check().
  TileConv2d(SampleShape tile, std::int64_t out_channels, const ConvOptions& options,
             const TensorShare& share);

  SampleShape output() const override { return conv_.output(); }
  ParameterTable parameters() const override { return conv_.parameters(); }
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace where) const override;
  std::int64_t saved_elems(std::int64_t rows) const override;
  std::int64_t stash_elems(std::int64_t rows) const override;
  bool params_read_stash(std::int64_t /*rows*/) const override { return false; }
  LayerCost cost() const override { return conv_.cost(); }
  Result<Placement> placement(const Placement& x,
                              std::span<const ParameterInfo> parameters) const override {
    GW_TRY(check_reads(x, {Placement::by_tiles()}));
    GW_TRY(check_whole_parameters(x, parameters));
    return x;
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;
  void finish_input(const LayerPass<T>& pass, std::span<const T> dy,
                    std::span<T> dx) const override;

 private:
  using Message = LayerPeers::Message<T>;
  // Lines of zeros or of a neighbour's on both sides of an axis.
  struct Sides {
    std::int64_t before = 0;
    std::int64_t behind = 0;
    std::int64_t both() const { return before + behind; }
  };
  // A neighbour, what of this tile is in its halo, and what of the neighbour is in this one's.
  struct Edge {
    int peer = 0;
    PlaneArea sent;                // of the tile
    PlaneArea received;            // of the padded tile
    std::int64_t sent_before = 0;  // elements of a sample in the edges before it
    std::int64_t received_before = 0;
  };
  static Sides sides_of(int parts, const ConvOptions& options);
  static SampleShape padded_of(SampleShape tile, const Sides& down, const Sides& right);
  void add_edge(const TileGrid& grid, int down, int right);
  std::int64_t edge_elems(std::int64_t rows, std::int64_t per_sample) const {
    return whole_lines<T>(rows * per_sample);
  }
  PlaneArea inside() const { return {down_.before, right_.before, tile_.height, tile_.width}; }
  bool is_padded() const { return padded_ != tile_; }
  std::span<T> padded(const LayerPass<T>& pass) const;
  std::span<T> received(const LayerPass<T>& pass) const;
  std::span<T> sent_back(const LayerPass<T>& pass) const;
  std::span<T> received_back(const LayerPass<T>& pass) const;
  LayerPass<T> inner(const LayerPass<T>& pass) const;
  void put_halo(const LayerPass<T>& pass) const;

  SampleShape tile_;
  Sides down_;
  Sides right_;
  SampleShape padded_;
  Conv2d<T> conv_;  // of the padded tile
  std::vector<Edge> edges_;
  std::int64_t sent_ = 0;  // elements of a sample
  std::int64_t received_ = 0;
};

}  // namespace gradwire
