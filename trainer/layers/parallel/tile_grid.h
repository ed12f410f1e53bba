// Images that ranks divide into tiles of equal size, row by row of a grid.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "trainer/layers/block_part.h"
#include "trainer/layers/layer.h"
#include "trainer/tensor_share.h"

namespace gradwire {

struct TileGrid {
  int rows = 1;
  int columns = 1;
  int tile = 0;  // of this rank, whose number it is

  static TileGrid of(const TensorShare& share) {
    return {share.tile_rows, share.tile_columns, share.rank};
  }
  int row() const { return tile / columns; }
  int column() const { return tile % columns; }
  // Who has the tile so many rows further down, and columns further right; none: no tile is there.
  std::optional<int> neighbour(int down, int right) const {
    const int r = row() + down;
    const int c = column() + right;
    if (r < 0 || r >= rows || c < 0 || c >= columns) return std::nullopt;
    return r * columns + c;
  }
  SampleShape tile_of(SampleShape image) const {
    return {image.channels, image.height / rows, image.width / columns};
  }
  SampleShape image_of(SampleShape tile) const {
    return {tile.channels, tile.height * rows, tile.width * columns};
  }
};

// A rectangle of every plane of images.
struct PlaneArea {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t elems() const { return height * width; }
};

// Calls visit(index in the images, index in the rectangles one behind another, values) for every
// line of the rectangle `area` of `planes` planes of height x width values.
template <typename Visit>
void for_each_area_line(std::int64_t planes, std::int64_t height, std::int64_t width,
                        const PlaneArea& area, Visit visit) {
  std::int64_t packed = 0;
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    for (std::int64_t line = 0; line < area.height; ++line, packed += area.width) {
      visit((plane * height + area.top + line) * width + area.left, packed, area.width);
    }
  }
}

// images: `rows` of shape `image`; area_values: (rows, channels, area).
template <typename T>
void take_area(std::span<const T> images, std::int64_t rows, SampleShape image,
               const PlaneArea& area, std::span<T> area_values) {
  for_each_area_line(rows * image.channels, image.height, image.width, area,
                     [&](std::int64_t from, std::int64_t to, std::int64_t count) {
                       std::copy_n(images.begin() + from, count, area_values.begin() + to);
                     });
}

template <typename T>
void put_area(std::span<const T> area_values, std::int64_t rows, SampleShape image,
              const PlaneArea& area, std::span<T> images) {
  for_each_area_line(rows * image.channels, image.height, image.width, area,
                     [&](std::int64_t to, std::int64_t from, std::int64_t count) {
                       std::copy_n(area_values.begin() + from, count, images.begin() + to);
                     });
}

template <typename T>
void add_area(std::span<const T> area_values, std::int64_t rows, SampleShape image,
              const PlaneArea& area, std::span<T> images) {
  for_each_area_line(rows * image.channels, image.height, image.width, area,
                     [&](std::int64_t to, std::int64_t from, std::int64_t count) {
                       for (std::int64_t i = 0; i < count; ++i) {
                         images.data()[to + i] += area_values.data()[from + i];
                       }
                     });
}

// Where tile `number` is in the image; tiles have the shape `tile`.
inline PlaneArea tile_area(TileGrid grid, int number, SampleShape tile) {
  grid.tile = number;
  return {grid.row() * tile.height, grid.column() * tile.width, tile.height, tile.width};
}

// images: (rows, image), put together of the tiles (rows, tile) of all ranks, `tiles` being room
// for those. Waits for the peers.
template <typename T>
void gather_tiles(LayerPeers& peers, const TileGrid& grid, std::int64_t rows, SampleShape tile,
                  std::span<const T> mine, std::span<T> tiles, std::span<T> images) {
  peers.start_gather(mine, tiles);
  peers.await();
  const std::int64_t each = rows * tile.elems();
  for (int number = 0; number < grid.rows * grid.columns; ++number) {
    put_area<T>(part_of(tiles, number * each, each), rows, grid.image_of(tile),
                tile_area(grid, number, tile), images);
  }
}

}  // namespace gradwire
