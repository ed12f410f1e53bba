// powersgd's loops for each instruction set. Tiles of up to 4 rows and 4 directions keep every
// element of M that is read in a register for 4 multiplications, and M is read once for each 4
// directions.
#include <algorithm>
#include <bit>

#include "compress/powersgd/thin_loops.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/powersgd/thin_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace thin_lanes {
#if HWY_TARGET == HWY_SCALAR

void simd_times(const Corrected<float>& m, std::span<const float> qt, const ThinShape& shape,
                std::size_t first, std::size_t last, float* pt, ThinSum<float>* sum) {
  plain::times<float>(m, qt, shape, first, last, pt, sum);
}
void simd_transposed(std::span<const float> m, std::span<const float> pt, const ThinShape& shape,
                     std::size_t first, std::size_t last, float* qt) {
  plain::transposed_times<float>(m, pt, shape, first, last, qt);
}
void simd_product(std::span<const float> pt, std::span<const float> qt, const ThinShape& shape,
                  std::size_t i, std::size_t j, std::size_t count, float* out) {
  plain::product<float>(pt, qt, shape, i, j, count, out);
}
bool simd_take_product_away(std::span<const float> pt, std::span<const float> qt,
                            const ThinShape& shape, std::size_t i, std::size_t j, std::size_t count,
                            float own_scale, float* next) {
  return plain::take_product_away<float>(pt, qt, shape, i, j, count, own_scale, next);
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::ScalableTag<std::uint32_t> kBits;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
constexpr std::size_t kVectors = kGroup / kLanes;
using Floats = hn::Vec<hn::ScalableTag<float> >;
static_assert(kGroup == kDotLanes);

constexpr std::size_t kRows = 4;
constexpr std::size_t kDirections = 4;
constexpr std::size_t kAhead = kAheadBytes / sizeof(float);

// What a tile of P = M Q works on: rows of M, their P's, one block of columns.
struct Tile {
  const Corrected<float>* m;
  const float* qt;  // of the tile's first direction
  ThinShape shape;
  std::size_t i;        // the first row
  std::size_t j;        // the first column
  std::size_t width;    // of the block
  ThinSum<float>* sum;  // null, or where the rows' elements go
};

// Asks for what comes kAhead columns after column j of each row: of the same row, or behind the
// block's end of the row that is next in its place.
template <bool Fed, std::size_t Count>
HWY_INLINE void fetch_rows(const Tile& t, std::size_t j) {
  const std::size_t ahead = j + kAhead;
  const std::size_t skip = ahead < t.width ? 0 : Count * t.shape.c - t.width;
  for (std::size_t r = 0; r < Count; ++r) {
    const std::size_t place = (t.i + r) * t.shape.c + t.j + ahead + skip;
    hwy::Prefetch(t.m->grad + place);
    if constexpr (Fed) hwy::Prefetch(t.m->residual + place);
  }
}

HWY_INLINE void put(Floats value, float* to) {
  if (reinterpret_cast<std::uintptr_t>(to) % (kLanes * sizeof(float)) == 0) {
    hn::Stream(value, kFloats, to);
  } else {
    hn::StoreU(value, kFloats, to);
  }
}

enum class Residual { kNone, kWhole, kOwing };

// Elements of Count rows, a vector of columns at a time.
template <Residual Kind, std::size_t Count, std::size_t Wide>
class Elements {
 public:
  explicit Elements(const Tile& tile) : t_(tile) {
    if constexpr (Kind == Residual::kOwing) {
      factor_ = hn::Set(kFloats, t_.sum->owed_scale);
      for (std::size_t r = 0; r < Count; ++r) {
        for (std::size_t k = 0; k < Wide; ++k) {
          p_[r][k] = hn::Set(kFloats, t_.sum->owed_pt[k * t_.shape.a + t_.i + r]);
        }
      }
    }
  }

  // Of the columns from `column` of the block on.
  HWY_INLINE void at(std::size_t column) {
    if constexpr (Kind == Residual::kOwing) {
      for (std::size_t k = 0; k < Wide; ++k) {
        q_[k] = hn::LoadU(kFloats, t_.sum->owed_qt + k * t_.shape.c + t_.j + column);
      }
    }
  }
  HWY_INLINE Floats row(std::size_t r, std::size_t place) {
    if constexpr (Kind == Residual::kNone) return load<false>(kFloats, *t_.m, place);
    Floats m;
    if constexpr (Kind == Residual::kOwing) {
      Floats own = hn::Zero(kFloats);
      for (std::size_t k = 0; k < Wide; ++k) own = hn::MulAdd(p_[r][k], q_[k], own);
      const Floats rest =
          hn::Sub(hn::LoadU(kFloats, t_.m->residual + place), hn::Mul(own, factor_));
      m = hn::Add(hn::LoadU(kFloats, t_.m->grad + place), rest);
    } else {
      m = load<true>(kFloats, *t_.m, place);
    }
    if (t_.sum != nullptr) {
      put(m, t_.sum->to + place);
      most_ = hn::Max(most_, hn::And(hn::BitCast(kBits, m), hn::Set(kBits, 0x7fffffffu)));
    }
    return m;
  }
  // The largest magnitude of those that row() gave, as bits.
  std::uint32_t most() const { return hn::GetLane(hn::MaxOfLanes(kBits, most_)); }

 private:
  const Tile& t_;
  Floats p_[Count][Wide];
  Floats q_[Wide];
  Floats factor_;
  hn::Vec<hn::ScalableTag<std::uint32_t> > most_ = hn::Zero(kBits);
};

// Adds the block's part of Count rows times Wide directions to p[direction * a + row].
template <Residual Kind, std::size_t Count, std::size_t Wide>
void times_tile(const Tile& t, float* p) {
  Floats sum[Count][Wide][kVectors];
  for (auto& row : sum) {
    for (auto& direction : row) {
      for (auto& vector : direction) vector = hn::Zero(kFloats);
    }
  }
  Elements<Kind, Count, Wide> elements(t);
  std::size_t j = 0;
  for (; j + kGroup <= t.width; j += kGroup) {
    fetch_rows<Kind != Residual::kNone, Count>(t, j);
    for (std::size_t v = 0; v < kVectors; ++v) {
      Floats q[Wide];
      for (std::size_t k = 0; k < Wide; ++k) {
        q[k] = hn::LoadU(kFloats, t.qt + k * t.shape.c + t.j + j + v * kLanes);
      }
      elements.at(j + v * kLanes);
      for (std::size_t r = 0; r < Count; ++r) {
        const Floats m = elements.row(r, (t.i + r) * t.shape.c + t.j + j + v * kLanes);
        for (std::size_t k = 0; k < Wide; ++k) sum[r][k][v] = hn::MulAdd(m, q[k], sum[r][k][v]);
      }
    }
  }
  std::uint32_t most = elements.most();
  for (std::size_t r = 0; r < Count; ++r) {
    float tail[kGroup];
    for (std::size_t l = j; l < t.width; ++l) {
      tail[l - j] = thin_element(*t.m, t.sum, t.shape, t.i + r, t.j + l);
      most = std::max(most, std::bit_cast<std::uint32_t>(tail[l - j]) & 0x7fffffffu);
      if (t.sum != nullptr) t.sum->to[(t.i + r) * t.shape.c + t.j + l] = tail[l - j];
    }
    for (std::size_t k = 0; k < Wide; ++k) {
      alignas(64) float lanes[kDotLanes];
      for (std::size_t v = 0; v < kVectors; ++v) {
        hn::Store(sum[r][k][v], kFloats, lanes + v * kLanes);
      }
      const float* q = t.qt + k * t.shape.c + t.j;
      for (std::size_t l = j; l < t.width; ++l) {
        lanes[l - j] = multiply_add(tail[l - j], q[l], lanes[l - j]);
      }
      p[k * t.shape.a + t.i + r] += fold_lanes(lanes);
    }
  }
  if (t.sum == nullptr) return;
  t.sum->largest =
      std::bit_cast<float>(std::max(most, std::bit_cast<std::uint32_t>(t.sum->largest)));
}

template <Residual Kind, std::size_t Count>
void times_directions(const Tile& t, std::size_t wide, float* p) {
  switch (wide) {
    case 1: return times_tile<Kind, Count, 1>(t, p);
    case 2: return times_tile<Kind, Count, 2>(t, p);
    case 3: return times_tile<Kind, Count, 3>(t, p);
    default: return times_tile<Kind, Count, kDirections>(t, p);
  }
}

// What is owed is taken away within one tile's directions.
static_assert(kOwedDirections == kDirections);

template <Residual Kind>
void times_rows(const Corrected<float>& m, std::span<const float> qt, const ThinShape& shape,
                std::size_t first, std::size_t last, float* pt, ThinSum<float>* sum) {
  for (std::size_t i = first; i < last;) {
    const std::size_t count = last - i >= kRows ? kRows : 1;
    for (std::size_t j = 0; j < shape.c; j += kDotBlock) {
      for (std::size_t k = 0; k < shape.r; k += kDirections) {
        const Tile tile{&m,
                        &qt[k * shape.c],
                        shape,
                        i,
                        j,
                        std::min(kDotBlock, shape.c - j),
                        k == 0 ? sum : nullptr};
        const std::size_t wide = std::min(kDirections, shape.r - k);
        if (count == kRows) {
          times_directions<Kind, kRows>(tile, wide, pt + k * shape.a);
        } else {
          times_directions<Kind, 1>(tile, wide, pt + k * shape.a);
        }
      }
    }
    i += count;
  }
}

void simd_times(const Corrected<float>& m, std::span<const float> qt, const ThinShape& shape,
                std::size_t first, std::size_t last, float* pt, ThinSum<float>* sum) {
  for (std::size_t k = 0; k < shape.r; ++k) {
    std::fill(pt + k * shape.a + first, pt + k * shape.a + last, 0.0f);
  }
  if (sum != nullptr) sum->largest = 0;
  if (sum != nullptr && sum->owed_pt != nullptr) {
    times_rows<Residual::kOwing>(m, qt, shape, first, last, pt, sum);
  } else if (m.residual != nullptr) {
    times_rows<Residual::kWhole>(m, qt, shape, first, last, pt, sum);
  } else {
    times_rows<Residual::kNone>(m, qt, shape, first, last, pt, sum);
  }
}

// Adds Count rows' parts to Wide directions of Q^T.
template <std::size_t Count, std::size_t Wide>
void transposed_tile(const float* m, const float* pt, const ThinShape& shape, std::size_t i,
                     float* qt) {
  Floats p[Count][Wide];
  for (std::size_t r = 0; r < Count; ++r) {
    for (std::size_t k = 0; k < Wide; ++k) p[r][k] = hn::Set(kFloats, pt[k * shape.a + i + r]);
  }
  std::size_t j = 0;
  for (; j + kGroup <= shape.c; j += kGroup) {
    const std::size_t ahead = j + kAhead;
    const std::size_t skip = ahead < shape.c ? 0 : (Count - 1) * shape.c;
    for (std::size_t r = 0; r < Count; ++r) {
      hwy::Prefetch(m + (i + r) * shape.c + ahead + skip);
    }
    for (std::size_t v = j; v < j + kGroup; v += kLanes) {
      Floats q[Wide];
      for (std::size_t k = 0; k < Wide; ++k) q[k] = hn::LoadU(kFloats, qt + k * shape.c + v);
      for (std::size_t r = 0; r < Count; ++r) {
        const Floats row = hn::LoadU(kFloats, m + (i + r) * shape.c + v);
        for (std::size_t k = 0; k < Wide; ++k) q[k] = hn::MulAdd(p[r][k], row, q[k]);
      }
      for (std::size_t k = 0; k < Wide; ++k) hn::StoreU(q[k], kFloats, qt + k * shape.c + v);
    }
  }
  for (; j < shape.c; ++j) {
    for (std::size_t r = 0; r < Count; ++r) {
      for (std::size_t k = 0; k < Wide; ++k) {
        float& q = qt[k * shape.c + j];
        q = multiply_add(pt[k * shape.a + i + r], m[(i + r) * shape.c + j], q);
      }
    }
  }
}

template <std::size_t Count>
void transposed_directions(const float* m, const float* pt, const ThinShape& shape, std::size_t i,
                           std::size_t wide, float* qt) {
  switch (wide) {
    case 1: return transposed_tile<Count, 1>(m, pt, shape, i, qt);
    case 2: return transposed_tile<Count, 2>(m, pt, shape, i, qt);
    case 3: return transposed_tile<Count, 3>(m, pt, shape, i, qt);
    default: return transposed_tile<Count, kDirections>(m, pt, shape, i, qt);
  }
}

void simd_transposed(std::span<const float> m, std::span<const float> pt, const ThinShape& shape,
                     std::size_t first, std::size_t last, float* qt) {
  for (std::size_t i = first; i < last;) {
    const std::size_t count = last - i >= kRows ? kRows : 1;
    for (std::size_t k = 0; k < shape.r; k += kDirections) {
      const std::size_t wide = std::min(kDirections, shape.r - k);
      const float* p = &pt[k * shape.a];
      if (count == kRows) {
        transposed_directions<kRows>(m.data(), p, shape, i, wide, qt + k * shape.c);
      } else {
        transposed_directions<1>(m.data(), p, shape, i, wide, qt + k * shape.c);
      }
    }
    i += count;
  }
}

// Calls put(place, vector, value) for kGroup elements of row i of P Q^T from column j on.
template <class Put>
HWY_INLINE void product_group(std::span<const float> pt, std::span<const float> qt,
                              const ThinShape& shape, std::size_t i, std::size_t j,
                              const Put& put) {
  Floats sum[kVectors];
  for (Floats& vector : sum) vector = hn::Zero(kFloats);
  for (std::size_t k = 0; k < shape.r; ++k) {
    const Floats p = hn::Set(kFloats, pt[k * shape.a + i]);
    const float* q = &qt[k * shape.c + j];
    for (std::size_t v = 0; v < kVectors; ++v) {
      sum[v] = hn::MulAdd(p, hn::LoadU(kFloats, q + v * kLanes), sum[v]);
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) put(v * kLanes, sum[v]);
}

void simd_product(std::span<const float> pt, std::span<const float> qt, const ThinShape& shape,
                  std::size_t i, std::size_t j, std::size_t count, float* out) {
  std::size_t done = 0;
  for (; done + kGroup <= count; done += kGroup) {
    product_group(pt, qt, shape, i, j + done, [&](std::size_t place, Floats value) HWY_ATTR {
      hn::StoreU(value, kFloats, out + done + place);
    });
  }
  plain::product<float>(pt, qt, shape, i, j + done, count - done, out + done);
}

bool simd_take_product_away(std::span<const float> pt, std::span<const float> qt,
                            const ThinShape& shape, std::size_t i, std::size_t j, std::size_t count,
                            float own_scale, float* next) {
  const Floats factor = hn::Set(kFloats, own_scale);
  const hn::ScalableTag<std::uint32_t> bits;
  const auto magnitude = hn::Set(bits, 0x7fffffffu);
  auto most = hn::Zero(bits);
  std::size_t done = 0;
  for (; done + kGroup <= count; done += kGroup) {
    fetch_ahead(next + done);
    product_group(pt, qt, shape, i, j + done, [&](std::size_t place, Floats value) HWY_ATTR {
      float* to = next + done + place;
      const Floats rest = hn::Sub(hn::LoadU(kFloats, to), hn::Mul(value, factor));
      most = hn::Max(most, hn::And(hn::BitCast(bits, rest), magnitude));
      hn::StoreU(rest, kFloats, to);
    });
  }
  const bool finite = hn::GetLane(hn::MaxOfLanes(bits, most)) < 0x7f800000u;
  return plain::take_product_away<float>(pt, qt, shape, i, j + done, count - done, own_scale,
                                         next + done) &&
         finite;
}

#endif
}  // namespace thin_lanes

using thin_lanes::simd_product;
using thin_lanes::simd_take_product_away;
using thin_lanes::simd_times;
using thin_lanes::simd_transposed;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu::simd {

HWY_EXPORT(simd_times);
HWY_EXPORT(simd_transposed);
HWY_EXPORT(simd_product);
HWY_EXPORT(simd_take_product_away);

void times(const Corrected<float>& m, std::span<const float> qt, const ThinShape& shape,
           std::size_t first, std::size_t last, float* pt, ThinSum<float>* sum) {
  HWY_DYNAMIC_DISPATCH(simd_times)(m, qt, shape, first, last, pt, sum);
}
void transposed_times(std::span<const float> m, std::span<const float> pt, const ThinShape& shape,
                      std::size_t first, std::size_t last, float* qt) {
  HWY_DYNAMIC_DISPATCH(simd_transposed)(m, pt, shape, first, last, qt);
}
void product(std::span<const float> pt, std::span<const float> qt, const ThinShape& shape,
             std::size_t i, std::size_t j, std::size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(simd_product)(pt, qt, shape, i, j, count, out);
}
bool take_product_away(std::span<const float> pt, std::span<const float> qt, const ThinShape& shape,
                       std::size_t i, std::size_t j, std::size_t count, float own_scale,
                       float* next) {
  return HWY_DYNAMIC_DISPATCH(simd_take_product_away)(pt, qt, shape, i, j, count, own_scale, next);
}

}  // namespace gradwire::cpu::simd
#endif
