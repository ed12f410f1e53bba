// Layers of images that ranks divide into tiles, or by samples, against the layers of whole images:
// values, gradients, and bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/adapters/tensor/tensor_ranks.h"
#include "tests/support/fails.h"
#include "trainer/layers/avg_pool2d.h"
#include "trainer/layers/batch_norm2d.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/parallel/own_samples.h"
#include "trainer/layers/parallel/own_tile.h"
#include "trainer/layers/parallel/tile_conv2d.h"
#include "trainer/layers/parallel/tile_gather.h"
#include "trainer/layers/parallel/tile_mean.h"

namespace gradwire::testing::tile_layers_test {
namespace {

struct Grid {
  int rows;
  int columns;
  int ranks() const { return rows * columns; }
  TensorShare share(int rank) const {
    return {.ranks = ranks(),
            .rank = rank,
            .layout = TensorShare::Layout::kTiles,
            .tile_rows = rows,
            .tile_columns = columns};
  }
};
const std::vector<Grid> kGrids{{2, 2}, {1, 2}, {2, 1}, {1, 3}, {3, 2}};

// A rank's tile of images.
template <typename T>
std::vector<T> tile(const std::vector<T>& images, SampleShape image, const TensorShare& share) {
  const TileGrid grid = TileGrid::of(share);
  const SampleShape shape = grid.tile_of(image);
  const auto rows = static_cast<std::int64_t>(images.size()) / image.elems();
  std::vector<T> values(static_cast<std::size_t>(rows * shape.elems()));
  take_area<T>(images, rows, image, tile_area(grid, share.rank, shape), values);
  return values;
}

template <typename T>
std::vector<T> summed(TensorRank& at, std::vector<T> values) {
  at.peers.start_sum(std::span(values));
  at.peers.await();
  return values;
}

struct ConvCase {
  SampleShape in;
  std::int64_t out;
  ConvOptions options;
};
const std::vector<ConvCase> kConvs{{{3, 12, 12}, 4, {3, 1, 1}},
                                   {{3, 12, 12}, 4, {5, 1, 2}},
                                   {{4, 12, 12}, 6, {3, 2, 1, 2, false}},
                                   {{2, 12, 12}, 3, {5, 2, 2}},
                                   {{2, 12, 12}, 3, {1, 2, 0, 1, false}},
                                   {{2, 12, 12}, 3, {1, 1, 0}},
                                   {{2, 6, 6}, 3, {5, 1, 2}}};

template <typename T>
void expect_conv(const ConvCase& c, const Grid& grid, double within) {
  constexpr std::int64_t kRows = 3;
  const Conv2d<T> layer(c.in, c.out, c.options);
  const std::int64_t params = parameter_elems(layer.parameters());
  LayerRun<T> whole(layer, kRows, draws<T>(kRows * c.in.elems(), 1), draws<T>(params, 2));
  whole.forward();
  const std::vector<T> dy = draws<T>(kRows * layer.output().elems(), 3);
  whole.backward(dy);
  on_tensor_ranks(grid.ranks(), [&](TensorRank& at) {
    const TensorShare share = grid.share(at.rank());
    const SampleShape shape = TileGrid::of(share).tile_of(c.in);
    ASSERT_TRUE(TileConv2d<T>::check(shape, c.options, share).ok())
        << TileConv2d<T>::check(shape, c.options, share).message();
    const TileConv2d<T> tiled(shape, c.out, c.options, share);
    LayerRun<T> run(tiled, kRows, tile(whole.x, c.in, share), whole.params);
    run.peers = &at.peers;
    run.forward();
    EXPECT_LE(relative_distance(run.y, tile(whole.y, layer.output(), share)), within);
    run.backward(tile(dy, layer.output(), share));
    EXPECT_LE(relative_distance(run.dx, tile(whole.dx, c.in, share)), within);
    EXPECT_LE(relative_distance(summed(at, run.grads), whole.grads), within);
  });
}

// Kernels of 1, 3 and 5, strides, groups, halos as large as a tile; corners in the grids of two and
// three rows.
TEST(TileLayers, M17_ConvolutionsAreTheWholeImages) {
  for (const Grid& grid : kGrids) {
    for (const ConvCase& c : kConvs) {
      SCOPED_TRACE(format("%dx%d, kernel %lld, stride %lld", grid.rows, grid.columns,
                          static_cast<long long>(c.options.kernel),
                          static_cast<long long>(c.options.stride)));
      expect_conv<float>(c, grid, 1e-5);
      expect_conv<double>(c, grid, 1e-13);
    }
  }
}

// In a grid of 2 x 2 a rank sends to one neighbour beside, one below or above, and one across, so
// (r (a + b) + r^2) C values of a sample; the derivatives of a halo go back the same way. In a row
// of three the one in the middle sends twice as much as those at the ends.
TEST(TileLayers, M17_HaloBytesAreExact) {
  for (const std::int64_t r : {1, 2}) {
    const SampleShape image{3, 8, 12};
    const ConvOptions options{2 * r + 1, 1, r};
    for (const std::int64_t rows : {1, 4}) {
      const auto expect_sent = [&](const Grid& grid, const auto& elems_of) {
        on_tensor_ranks(grid.ranks(), [&](TensorRank& at) {
          const TensorShare share = grid.share(at.rank());
          const TileConv2d<float> layer(TileGrid::of(share).tile_of(image), 2, options, share);
          const SampleShape shape = TileGrid::of(share).tile_of(image);
          LayerRun<float> run(layer, rows, draws<float>(rows * shape.elems(), 1),
                              draws<float>(parameter_elems(layer.parameters()), 2));
          run.peers = &at.peers;
          const auto bytes = static_cast<std::uint64_t>(rows * elems_of(at.rank()) * 3 * 4);
          EXPECT_EQ(at.bytes_of([&] { run.forward(); }), bytes);
          const auto dy = draws<float>(rows * layer.output().elems(), 3);
          EXPECT_EQ(at.bytes_of([&] { run.backward(dy); }), bytes);
          EXPECT_EQ(at.peers.exchanges(), 2);
        });
      };
      const std::int64_t a = 4;
      const std::int64_t b = 6;
      expect_sent({2, 2}, [&](int) { return r * (a + b) + r * r; });
      expect_sent({1, 3}, [&](int rank) { return rank == 1 ? 2 * r * 8 : r * 8; });
    }
  }
}

// With stride 2 a tile reads a line of the one before it alone.
TEST(TileLayers, M17_StridesSendWhatWindowsRead) {
  const Grid grid{1, 2};
  on_tensor_ranks(2, [&](TensorRank& at) {
    const TensorShare share = grid.share(at.rank());
    const TileConv2d<float> layer({2, 8, 4}, 3, {3, 2, 1}, share);
    LayerRun<float> run(layer, 1, draws<float>(2 * 8 * 4, 1),
                        draws<float>(parameter_elems(layer.parameters()), 2));
    run.peers = &at.peers;
    EXPECT_EQ(at.bytes_of([&] { run.forward(); }), at.rank() == 0 ? 8U * 2 * 4 : 0U);
    const auto dy = draws<float>(layer.output().elems(), 3);
    EXPECT_EQ(at.bytes_of([&] { run.backward(dy); }), at.rank() == 1 ? 8U * 2 * 4 : 0U);
  });
}

TEST(TileLayers, WhatTilesCannotComputeIsNamed) {
  const auto refused = [](SampleShape image, const ConvOptions& options, const Grid& grid) {
    const TensorShare share = grid.share(0);
    return TileConv2d<float>::check(TileGrid::of(share).tile_of(image), options, share);
  };
  EXPECT_THAT(refused({1, 6, 6}, {3, 2, 1}, {2, 1}),
              fails(Code::kInvalidArgument, "height of 6 values in 2 parts", "got 3",
                    "a multiple of the stride"));
  EXPECT_THAT(refused({3, 224, 224}, {11, 4, 2}, {1, 2}),
              fails(Code::kInvalidArgument, "width of 224", "outputs", "got 55", "expected 56"));
  EXPECT_THAT(refused({1, 8, 8}, {3, 1, 0}, {2, 2}),
              fails(Code::kInvalidArgument, "height of 8", "got 6", "expected 8"));
  EXPECT_THAT(refused({1, 4, 4}, {5, 1, 2}, {1, 4}),
              fails(Code::kInvalidArgument, "width of 4", "halo", "got 2", "at most 1"));
  // An axis that is not divided has no rules.
  EXPECT_TRUE(refused({1, 7, 8}, {3, 2, 1}, {1, 2}).ok());
}

// Values of a channel lie on all ranks: means, variances and both sums of the way back are theirs
// together, and so is what a step leaves in the running statistics. `part`: what a rank has.
template <typename T>
void expect_norm(int ranks, std::int64_t rows, SampleShape image, std::int64_t part_rows,
                 SampleShape part_shape, double within,
                 const std::function<std::vector<T>(const std::vector<T>&, int)>& part) {
  const BatchNorm2d<T> layer(image);
  std::vector<T> x = draws<T>(rows * image.elems(), 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] * T(1.5) + T(i % 7);  // not around 0
  LayerRun<T> whole(layer, rows, x, draws<T>(parameter_elems(layer.parameters()), 2));
  whole.forward();
  const std::vector<T> dy = draws<T>(rows * image.elems(), 3);
  whole.backward(dy);
  const std::int64_t c = image.channels;
  on_tensor_ranks(ranks, [&](TensorRank& at) {
    const BatchNorm2d<T> shared(part_shape, ranks);
    LayerRun<T> run(shared, part_rows, part(x, at.rank()), whole.params);
    run.peers = &at.peers;
    const std::uint64_t sent = at.bytes_of([&] { run.forward(); });
    EXPECT_EQ(sent, static_cast<std::uint64_t>((ranks - 1) * 2 * c * 8));
    EXPECT_LE(relative_distance(run.y, part(whole.y, at.rank())), within);
    EXPECT_LE(relative_distance(run.statistics, whole.statistics), 1e-12);
    const std::vector<T> own_dy = part(dy, at.rank());
    const std::uint64_t back = at.bytes_of([&] { run.backward(own_dy); });
    if (2 * c % ranks == 0) {
      EXPECT_EQ(back, static_cast<std::uint64_t>(2 * (ranks - 1) * 2 * c * 8 / ranks));
    }
    EXPECT_LE(relative_distance(run.dx, part(whole.dx, at.rank())), within);
    EXPECT_LE(relative_distance(summed(at, run.grads), whole.grads), within);
    std::vector<T> buffers = run.buffers;
    shared.commit(run.statistics, buffers);
    std::vector<T> expected = whole.buffers;
    layer.commit(whole.statistics, expected);
    EXPECT_LE(relative_distance(buffers, expected), within);
    // What was collected is for all ranks; what is computed again collects nothing, and agrees.
    const std::vector<double> statistics = run.statistics;
    const std::vector<T> first = run.y;
    run.context.mode = PassMode::kRecompute;
    run.forward();
    EXPECT_EQ(run.statistics, statistics);
    EXPECT_EQ(run.y, first);
    // With running statistics nothing is asked of the others.
    run.context.mode = PassMode::kEvaluate;
    EXPECT_EQ(at.bytes_of([&] { run.forward(); }), 0U);
  });
}

template <typename T>
void expect_norms(double within) {
  for (const Grid& grid : kGrids) {
    const SampleShape image{4, 6, 6};
    const SampleShape shape = TileGrid::of(grid.share(0)).tile_of(image);
    expect_norm<T>(grid.ranks(), 3, image, 3, shape, within,
                   [&](const std::vector<T>& values, int rank) {
                     return tile(values, image, grid.share(rank));
                   });
  }
  for (const int ranks : {2, 4}) {
    const SampleShape image{3, 5, 5};
    expect_norm<T>(ranks, 8, image, 8 / ranks, image, within,
                   [&](const std::vector<T>& values, int rank) {
                     const std::size_t each = values.size() / static_cast<std::size_t>(ranks);
                     const auto begin = values.begin() + static_cast<std::ptrdiff_t>(each) * rank;
                     return std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(each));
                   });
  }
}

TEST(TileLayers, BatchNormIsOverAllTilesAndSamples) {
  expect_norms<float>(1e-5);
  expect_norms<double>(1e-12);
}

// The same layer, whole and of tiles: of `whole` and of what `make` gives for a tile.
template <typename Make>
void expect_tiled(const Layer<double>& whole_layer, SampleShape image, const Grid& grid,
                  bool whole_output, const Make& make) {
  constexpr std::int64_t kRows = 2;
  LayerRun<double> whole(whole_layer, kRows, draws<double>(kRows * image.elems(), 1), {});
  whole.forward();
  const auto dy = draws<double>(kRows * whole_layer.output().elems(), 3);
  whole.backward(dy);
  on_tensor_ranks(grid.ranks(), [&](TensorRank& at) {
    const TensorShare share = grid.share(at.rank());
    const auto layer = make(TileGrid::of(share).tile_of(image), share);
    LayerRun<double> run(*layer, kRows, tile(whole.x, image, share), {});
    run.peers = &at.peers;
    run.forward();
    const auto here = [&](const std::vector<double>& values) {
      return whole_output ? values : tile(values, whole_layer.output(), share);
    };
    EXPECT_LE(distance(run.y, here(whole.y)), 1e-13);
    EXPECT_EQ(at.bytes_of([&] { run.backward(here(dy)); }), 0U);
    EXPECT_LE(distance(run.dx, tile(whole.dx, image, share)), 1e-13);
  });
}

TEST(TileLayers, PoolsAreTheWholeImages) {
  const SampleShape image{3, 12, 12};
  for (const Grid& grid : kGrids) {
    expect_tiled(MaxPool2d<double>(image), image, grid, false,
                 [](SampleShape shape, const TensorShare&) {
                   return std::make_unique<MaxPool2d<double>>(shape);
                 });
    expect_tiled(AvgPool2d<double>::global(image), image, grid, true,
                 [](SampleShape shape, const TensorShare& share) {
                   return std::make_unique<TileMean<double>>(shape, share);
                 });
  }
}

// Along an axis that is not divided windows lie as in the whole image: what the last ones do not
// reach is left out.
TEST(TileLayers, PoolsHaveRulesForDividedAxesAlone) {
  const SampleShape image{3, 11, 12};
  const TiledAxes by_columns{false, true};
  expect_tiled(MaxPool2d<double>(image), image, {1, 2}, false,
               [&](SampleShape shape, const TensorShare&) {
                 return std::make_unique<MaxPool2d<double>>(shape, 2, 2, by_columns);
               });
  const auto fits = [](SampleShape tile, std::int64_t window, const TiledAxes& tiled) {
    const MaxPool2d<double> layer(tile, window, 2, tiled);
    EXPECT_EQ(layer.placement(Placement::by_tiles(), {}).has_value(), layer.fits_tiles());
    return layer.fits_tiles();
  };
  EXPECT_TRUE(fits({3, 11, 6}, 2, by_columns));
  EXPECT_FALSE(fits({3, 11, 6}, 2, {}));
  EXPECT_FALSE(fits({3, 12, 5}, 2, by_columns));
  EXPECT_FALSE(fits({3, 12, 6}, 3, by_columns));
  EXPECT_TRUE(fits({3, 6, 11}, 2, {true, false}));
}

// The halo alone is kept from forward; what the way back exchanges has the room of one layer at a
// time.
TEST(TileLayers, ConvolutionsKeepTheHaloOnce) {
  const TensorShare share = Grid{2, 2}.share(3);
  const TileConv2d<float> layer({3, 4, 8}, 2, {3, 1, 1}, share);
  const std::int64_t halo = 4 * 3 * (4 + 8 + 1);  // of 4 samples: a side of both kinds and a corner
  EXPECT_EQ(layer.saved_elems(4), whole_lines<float>(halo));
  EXPECT_EQ(layer.stash_elems(4), 2 * whole_lines<float>(halo));
  EXPECT_FALSE(layer.params_read_stash(4));
}

// There and back: a rank's tile of an image, and the image of all tiles.
TEST(TileLayers, TilesAreTakenAndGathered) {
  const SampleShape image{2, 6, 12};
  for (const Grid& grid : kGrids) {
    const std::vector<double> images = draws<double>(3 * image.elems(), 4);
    on_tensor_ranks(grid.ranks(), [&](TensorRank& at) {
      const TensorShare share = grid.share(at.rank());
      const OwnTile<double> own(image, share);
      LayerRun<double> taken(own, 3, images, {});
      taken.peers = &at.peers;
      EXPECT_EQ(taken.forward(), tile(images, image, share));
      const TileGather<double> gather(own.output(), share);
      LayerRun<double> gathered(gather, 3, taken.y, {});
      gathered.peers = &at.peers;
      EXPECT_EQ(gathered.forward(), images);
      gathered.backward(images);
      EXPECT_EQ(gathered.dx, taken.y);
      taken.backward(taken.y);
      EXPECT_EQ(taken.dx, images);
    });
  }
}

}  // namespace
}  // namespace gradwire::testing::tile_layers_test
