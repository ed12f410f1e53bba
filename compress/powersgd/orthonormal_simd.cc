#include <algorithm>
#include <cmath>

#include "compress/powersgd/orthonormal_loops.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/powersgd/orthonormal_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace orthonormal_lanes {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kSums = kGramSums;
constexpr std::size_t kBlock = kGramBlock;

double fold_sums(double* sums) {
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

double dot_block(const double* x, const double* y, std::size_t length) {
  double sums[kSums] = {};
  for (std::size_t j = 0; j < length; ++j) sums[j % kSums] = std::fma(x[j], y[j], sums[j % kSums]);
  return fold_sums(sums);
}

void multiply_columns(const double* t, std::size_t count, std::size_t length, std::size_t first,
                      double* rows) {
  for (std::size_t j = first; j < length; ++j) {
    for (std::size_t k = count; k-- > 0;) {
      double sum = 0;
      for (std::size_t l = 0; l <= k; ++l) {
        sum = std::fma(t[k * count + l], rows[l * length + j], sum);
      }
      rows[k * length + j] = sum;
    }
  }
}

#if HWY_TARGET == HWY_SCALAR

void simd_lower_gram(const double* rows, std::size_t count, std::size_t length, double* gram) {
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t l = 0; l <= k; ++l) {
      double sum = 0;
      for (std::size_t j = 0; j < length; j += kBlock) {
        sum +=
            dot_block(rows + k * length + j, rows + l * length + j, std::min(kBlock, length - j));
      }
      gram[k * count + l] = sum;
    }
  }
}
void simd_multiply_lower(const double* t, std::size_t count, std::size_t length, double* rows) {
  multiply_columns(t, count, length, 0, rows);
}

#else

// Rows of a tile. Tiles keep what they load in registers for as many products.
constexpr std::size_t kTile = 4;
constexpr hn::ScalableTag<double> kDoubles;
constexpr std::size_t kLanes = hn::MaxLanes(kDoubles);
constexpr std::size_t kVectors = kSums / kLanes;
using Doubles = hn::Vec<hn::ScalableTag<double> >;

// gram += the products of kTile rows from `a` on with kTile rows from `b` on over one block.
void gram_tile(const double* a, const double* b, std::size_t stride, std::size_t width,
               std::size_t count, double* gram) {
  Doubles sum[kTile][kTile][kVectors];
  for (auto& row : sum) {
    for (auto& pair : row) {
      for (Doubles& vector : pair) vector = hn::Zero(kDoubles);
    }
  }
  for (std::size_t j = 0; j < width; j += kSums) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      Doubles y[kTile];
      for (std::size_t l = 0; l < kTile; ++l) {
        y[l] = hn::LoadU(kDoubles, b + l * stride + j + v * kLanes);
      }
      for (std::size_t k = 0; k < kTile; ++k) {
        const Doubles x = hn::LoadU(kDoubles, a + k * stride + j + v * kLanes);
        for (std::size_t l = 0; l < kTile; ++l) sum[k][l][v] = hn::MulAdd(x, y[l], sum[k][l][v]);
      }
    }
  }
  for (std::size_t k = 0; k < kTile; ++k) {
    for (std::size_t l = 0; l < kTile; ++l) {
      double sums[kSums];
      for (std::size_t v = 0; v < kVectors; ++v) {
        hn::StoreU(sum[k][l][v], kDoubles, sums + v * kLanes);
      }
      gram[k * count + l] += fold_sums(sums);
    }
  }
}

void simd_lower_gram(const double* rows, std::size_t count, std::size_t length, double* gram) {
  std::fill(gram, gram + count * count, 0.0);
  const std::size_t whole = count / kTile * kTile;
  for (std::size_t j = 0; j < length; j += kBlock) {
    const std::size_t width = std::min(kBlock, length - j);
    const double* block = rows + j;
    const bool tiles = width % kSums == 0;
    for (std::size_t k = 0; k < (tiles ? whole : 0); k += kTile) {
      for (std::size_t l = 0; l <= k; l += kTile) {
        gram_tile(block + k * length, block + l * length, length, width, count,
                  gram + k * count + l);
      }
    }
    for (std::size_t k = tiles ? whole : 0; k < count; ++k) {
      for (std::size_t l = 0; l <= k; ++l) {
        gram[k * count + l] += dot_block(block + k * length, block + l * length, width);
      }
    }
  }
}

// Rows k ... k + Count - 1 of columns j, j + 1, ... of t rows; rows above k are as they were.
template <std::size_t Count>
void multiply_tile(const double* t, std::size_t count, std::size_t length, std::size_t k,
                   std::size_t j, double* rows) {
  constexpr std::size_t kWide = 2;  // vectors
  Doubles sum[Count][kWide];
  for (auto& row : sum) {
    for (Doubles& vector : row) vector = hn::Zero(kDoubles);
  }
  for (std::size_t l = 0; l < k + Count; ++l) {
    Doubles x[kWide];
    for (std::size_t v = 0; v < kWide; ++v) {
      x[v] = hn::LoadU(kDoubles, rows + l * length + j + v * kLanes);
    }
    for (std::size_t r = 0; r < Count; ++r) {  // t is 0 above its diagonal
      const Doubles factor = hn::Set(kDoubles, t[(k + r) * count + l]);
      for (std::size_t v = 0; v < kWide; ++v) sum[r][v] = hn::MulAdd(factor, x[v], sum[r][v]);
    }
  }
  for (std::size_t r = 0; r < Count; ++r) {
    for (std::size_t v = 0; v < kWide; ++v) {
      hn::StoreU(sum[r][v], kDoubles, rows + (k + r) * length + j + v * kLanes);
    }
  }
}

void simd_multiply_lower(const double* t, std::size_t count, std::size_t length, double* rows) {
  constexpr std::size_t kColumns = 2 * kLanes;
  std::size_t j = 0;
  for (; j + kColumns <= length; j += kColumns) {
    std::size_t k = count;
    for (; k % kTile != 0; --k) multiply_tile<1>(t, count, length, k - 1, j, rows);
    for (; k > 0; k -= kTile) multiply_tile<kTile>(t, count, length, k - kTile, j, rows);
  }
  multiply_columns(t, count, length, j, rows);
}

#endif
}  // namespace orthonormal_lanes

using orthonormal_lanes::simd_lower_gram;
using orthonormal_lanes::simd_multiply_lower;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu {

HWY_EXPORT(simd_lower_gram);
HWY_EXPORT(simd_multiply_lower);

void lower_gram(const double* rows, std::size_t count, std::size_t length, double* gram) {
  HWY_DYNAMIC_DISPATCH(simd_lower_gram)(rows, count, length, gram);
}
void multiply_lower(const double* t, std::size_t count, std::size_t length, double* rows) {
  HWY_DYNAMIC_DISPATCH(simd_multiply_lower)(t, count, length, rows);
}

}  // namespace gradwire::cpu
#endif
