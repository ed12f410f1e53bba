// powersgd's products on a device, with the sums of thin_loops.h: a thread keeps Each of the 16
// sums of a dot product (of P^T M: Each columns) for up to Wide directions in registers, so that an
// element of M is read once for them all. Each is 4 where M's rows begin at 16 bytes, else 1.
// Blocks of a sum are made side by side, and added in order by ThinTotals.
#pragma once

#include <cmath>

#include "compress/cuda/slices.h"
#include "compress/powersgd/thin_loops.h"

namespace gradwire::cuda {

// What the kernels of thin factors find. Of several the first in this list is kept: places of the
// others begin behind those of elements.
enum ThinFinding : unsigned {
  kThinElement = 1,    // an element of gradient + residual is not finite
  kThinFactor = 2,     // a value of a factor is not
  kThinDependent = 3,  // directions are too close to dependent
  kThinOnceMore = 4,   // they want a second round
  kThinResidual = 5    // an element of the new residual is not finite
};
inline constexpr std::uint64_t kFactorPlaces = std::uint64_t{1} << 48;
inline constexpr std::uint64_t kPivotPlaces = 2 * kFactorPlaces;
inline constexpr std::uint64_t kResidualPlaces = 3 * kFactorPlaces;

struct ThinSizes {
  std::int64_t a = 0;  // rows of M
  std::int64_t c = 0;  // columns of M
  std::int64_t r = 0;  // directions
};

inline constexpr std::int64_t kDotLanes = cpu::kDotLanes;
inline constexpr std::int64_t kDotBlock = cpu::kDotBlock;
inline constexpr std::int64_t kRowBlock = cpu::kRowBlock;

// The Each elements from `place`, a multiple of Each, on. As an index the place tells the compiler
// that they lie aligned, so that one instruction moves them.
template <int Each>
GW_DEVICE Pack<float, Each>& pack_at(float* data, std::int64_t place) {
  return reinterpret_cast<Pack<float, Each>*>(data)[place / Each];
}
template <int Each>
GW_DEVICE const Pack<float, Each>& pack_at(const float* data, std::int64_t place) {
  return reinterpret_cast<const Pack<float, Each>*>(data)[place / Each];
}

// parts[b][k][i] = row i of M times direction k over block b of columns, for `wide` <= Wide
// directions. With a residual M is gradient + residual, and is written to `next`.
template <int Wide, int Each>
struct ThinTimes {
  static constexpr unsigned kThreads = 128;
  static constexpr int kAcross = static_cast<int>(kDotLanes) / Each;  // threads of a row
  static constexpr int kRows = static_cast<int>(kThreads) / kAcross;
  static constexpr int kAhead = 4;  // reads under way at once
  using Shared = NothingShared;
  using Some = Pack<float, Each>;

  Source m;  // own_scale is not looked at
  const float* qt;
  ThinSizes shape;
  int wide;
  float* parts;
  std::uint64_t* verdict;

  std::int64_t blocks() const {
    return blocks_for(shape.a, kRows) * blocks_for(shape.c, kDotBlock);
  }

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t row_groups = blocks_for(shape.a, kRows);
    const std::int64_t column_block = block.block() / row_groups;
    const std::int64_t i =
        block.block() % row_groups * kRows + static_cast<int>(block.thread()) / kAcross;
    const int lane = static_cast<int>(block.thread()) % kAcross * Each;
    float sums[Wide][Each] = {};
    if (i < shape.a) add_row(block, i, column_block * kDotBlock, lane, sums);
    for (int k = 0; k < Wide; ++k) {
      fold(block, sums[k]);
      if (lane != 0 || i >= shape.a || k >= wide) continue;
      // The host adds the first block to 0, which makes -0 of it 0.
      parts[(column_block * shape.r + k) * shape.a + i] =
          column_block == 0 ? 0.0f + sums[k][0] : sums[k][0];
    }
  }

 private:
  template <class Block>
  GW_DEVICE void add_row(Block& block, std::int64_t i, std::int64_t begin, int lane,
                         float (&sums)[Wide][Each]) const {
    const std::int64_t row = i * shape.c;
    const std::int64_t end = shape.c - begin < kDotBlock ? shape.c : begin + kDotBlock;
    std::int64_t j = begin + lane;
    for (; j + (kAhead - 1) * kDotLanes < end; j += kAhead * kDotLanes) {
      Some x[kAhead];
      for (int s = 0; s < kAhead; ++s) x[s] = read(row + j + s * kDotLanes);
      for (int s = 0; s < kAhead; ++s) {
        keep(block, row + j + s * kDotLanes, x[s]);
        add(x[s], j + s * kDotLanes, sums);
      }
    }
    for (; j < end; j += kDotLanes) {
      const Some x = read(row + j);
      keep(block, row + j, x);
      add(x, j, sums);
    }
  }
  GW_DEVICE Some read(std::int64_t place) const {
    Some x = pack_at<Each>(m.grad, place);
    if (m.residual == nullptr) return x;
    const Some e = pack_at<Each>(m.residual, place);
    for (int l = 0; l < Each; ++l) x.at[l] += e.at[l];
    return x;
  }
  template <class Block>
  GW_DEVICE void keep(Block& block, std::int64_t place, const Some& x) const {
    if (m.next == nullptr) return;
    pack_at<Each>(m.next, place) = x;
    for (int l = 0; l < Each; ++l) {
      if (is_finite(x.at[l])) continue;
      block.least(verdict, word_of(static_cast<std::uint64_t>(place + l), kThinElement));
    }
  }
  GW_DEVICE void add(const Some& x, std::int64_t j, float (&sums)[Wide][Each]) const {
    for (int k = 0; k < Wide; ++k) {
      const int direction = k < wide ? k : wide - 1;  // sums beyond `wide` are not used
      const Some q = pack_at<Each>(qt, direction * shape.c + j);
      for (int l = 0; l < Each; ++l) sums[k][l] = ::fmaf(x.at[l], q.at[l], sums[k][l]);
    }
  }
  // The sum of a row's 16 in its first thread, by halves.
  template <class Block>
  GW_DEVICE static void fold(Block& block, float (&sum)[Each]) {
    for (int half = static_cast<int>(kDotLanes) / 2; half > 0; half /= 2) {
      for (int l = 0; l < Each && l < half; ++l) {
        const float other =
            half < Each ? sum[(l + half) % Each]
                        : block.shuffle(sum[l], block.lane() + static_cast<unsigned>(half / Each));
        sum[l] += other;
      }
    }
  }
};

// parts[b][k][j] = direction k times column j of M over block b of rows, likewise.
template <int Wide, int Each>
struct ThinTransposedTimes {
  static constexpr unsigned kThreads = 64;
  static constexpr std::int64_t kColumns = std::int64_t{kThreads} * Each;
  static constexpr int kAhead = 8;
  struct Shared {
    float p[kRowBlock][Wide];
  };
  using Some = Pack<float, Each>;

  const float* m;
  const float* pt;
  ThinSizes shape;
  int wide;
  float* parts;

  std::int64_t blocks() const {
    return blocks_for(shape.c, kColumns) * blocks_for(shape.a, kRowBlock);
  }

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t column_groups = blocks_for(shape.c, kColumns);
    const std::int64_t row_block = block.block() / column_groups;
    const std::int64_t first = row_block * kRowBlock;
    const int rows = static_cast<int>(shape.a - first < kRowBlock ? shape.a - first : kRowBlock);
    for (int t = static_cast<int>(block.thread()); t < rows * Wide;
         t += static_cast<int>(kThreads)) {
      const int k = t / rows;
      const int i = t % rows;
      shared.p[i][k] = k < wide ? pt[k * shape.a + first + i] : 0.0f;
    }
    block.barrier();
    const std::int64_t j =
        block.block() % column_groups * kColumns + static_cast<std::int64_t>(block.thread()) * Each;
    if (j >= shape.c) return;
    float sums[Wide][Each] = {};
    const std::int64_t top = first * shape.c + j;
    int i = 0;
    for (; i + kAhead <= rows; i += kAhead) {
      Some x[kAhead];
      for (int s = 0; s < kAhead; ++s) x[s] = pack_at<Each>(m, top + (i + s) * shape.c);
      for (int s = 0; s < kAhead; ++s) add(shared.p[i + s], x[s], sums);
    }
    for (; i < rows; ++i) add(shared.p[i], pack_at<Each>(m, top + i * shape.c), sums);
    for (int k = 0; k < Wide; ++k) {
      if (k >= wide) return;
      Some sum;
      for (int l = 0; l < Each; ++l) sum.at[l] = sums[k][l];
      pack_at<Each>(parts, (row_block * shape.r + k) * shape.c + j) = sum;
    }
  }

 private:
  GW_DEVICE static void add(const float (&p)[Wide], const Some& x, float (&sums)[Wide][Each]) {
    for (int k = 0; k < Wide; ++k) {
      for (int l = 0; l < Each; ++l) sums[k][l] = ::fmaf(p[k], x.at[l], sums[k][l]);
    }
  }
};

// to[i] = keep[i] = parts[0][i] + parts[1][i] + ..., of `count` values each. `keep` may be null.
// With a verdict one that is not finite is found.
struct ThinTotals {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const float* parts;
  std::int64_t number;
  std::int64_t count;
  bool in_words;  // `to` begins at 4 bytes
  std::byte* to;
  float* keep;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t i = block.block() * kThreads + block.thread();
    if (i >= count) return;
    float sum = parts[i];
    for (std::int64_t b = 1; b < number; ++b) sum += parts[b * count + i];
    if (in_words) {
      reinterpret_cast<float*>(to)[i] = sum;
    } else {
      store_float(to, i, sum);
    }
    if (keep != nullptr) keep[i] = sum;
    if (verdict == nullptr || is_finite(sum)) return;
    block.least(verdict, word_of(kFactorPlaces + static_cast<std::uint64_t>(i), kThinFactor));
  }
};

// to = factor * what was received; a value that is not finite is found.
struct ThinReceived {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const std::byte* from;
  bool in_words;  // `from` begins at 4 bytes
  float factor;
  std::int64_t count;
  float* to;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t i = block.block() * kThreads + block.thread();
    if (i >= count) return;
    const float x = in_words ? reinterpret_cast<const float*>(from)[i] : load_float(from, i);
    to[i] = x * factor;
    if (is_finite(x)) return;
    block.least(verdict, word_of(kFactorPlaces + static_cast<std::uint64_t>(i), kThinFactor));
  }
};

// Ending::put(block, place, elements) of all elements of P Q^T, Each of a row at a time.
template <class Ending, int Each>
struct ThinProduct {
  static constexpr unsigned kThreads = 64;
  static constexpr std::int64_t kColumns = std::int64_t{kThreads} * Each;
  static constexpr int kRows = 8;  // of a thread, so that a value of Q serves as many
  using Shared = NothingShared;
  using Some = Pack<float, Each>;

  const float* pt;
  const float* qt;
  ThinSizes shape;
  Ending ending;

  std::int64_t blocks() const { return blocks_for(shape.c, kColumns) * blocks_for(shape.a, kRows); }

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t column_groups = blocks_for(shape.c, kColumns);
    const std::int64_t first = block.block() / column_groups * kRows;
    const int rows = static_cast<int>(shape.a - first < kRows ? shape.a - first : kRows);
    const std::int64_t j =
        block.block() % column_groups * kColumns + static_cast<std::int64_t>(block.thread()) * Each;
    if (j >= shape.c) return;
    float sums[kRows][Each] = {};
    for (std::int64_t k = 0; k < shape.r; ++k) {
      const Some q = pack_at<Each>(qt, k * shape.c + j);
      const float* const p = pt + k * shape.a + first;
      for (int i = 0; i < kRows; ++i) {
        const float x = p[i < rows ? i : rows - 1];
        for (int l = 0; l < Each; ++l) sums[i][l] = ::fmaf(x, q.at[l], sums[i][l]);
      }
    }
    for (int i = 0; i < kRows; ++i) {
      if (i >= rows) return;
      Some own;
      for (int l = 0; l < Each; ++l) own.at[l] = sums[i][l];
      ending.put(block, (first + i) * shape.c + j, own);
    }
  }
};

// m = the product
struct StoreProduct {
  float* m;
  template <class Block, std::size_t Each>
  GW_DEVICE void put(Block&, std::int64_t place, const Pack<float, Each>& own) const {
    pack_at<static_cast<int>(Each)>(m, place) = own;
  }
};

// next -= scale * the product
struct TakeProduct {
  float* next;
  float scale;
  std::uint64_t* verdict;
  template <class Block, std::size_t Each>
  GW_DEVICE void put(Block& block, std::int64_t place, const Pack<float, Each>& own) const {
    constexpr int kEach = static_cast<int>(Each);
    Pack<float, Each> rest = pack_at<kEach>(next, place);
    for (int l = 0; l < kEach; ++l) {
      rest.at[l] = rest.at[l] - own.at[l] * scale;
      if (is_finite(rest.at[l])) continue;
      block.least(verdict,
                  word_of(kResidualPlaces + static_cast<std::uint64_t>(place + l), kThinResidual));
    }
    pack_at<kEach>(next, place) = rest;
  }
};

}  // namespace gradwire::cuda
