// The loops of terngrad, global_qsgd and thc for each instruction set.
#include <cstring>

#include "compress/shared_scale/shared_scale_loops.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/shared_scale/shared_scale_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/narrow-inl.h"
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace shared_scale_lanes {
#if HWY_TARGET == HWY_SCALAR

void simd_levels(const LevelPlace<float>& place, std::span<const float> x, const std::byte* draws,
                 std::uint8_t* codes) {
  plain::code_levels(place, x, draws, codes);
}
void simd_cells(const CellPlace<float>& place, const CellTable& table, std::span<const float> x,
                const std::byte* draws, std::uint8_t* codes) {
  plain::code_cells(place, table, x, draws, codes);
}
void simd_byte_values(const std::uint8_t* sums, std::int64_t zero, float factor,
                      std::span<float> out) {
  plain::values_of(sums, zero, factor, out);
}
void simd_word_values(const std::uint32_t* sums, std::int64_t zero, float factor,
                      std::span<float> out) {
  plain::values_of(sums, zero, factor, out);
}
void simd_lanes(const LanePattern& pattern, const std::byte* words, std::size_t count,
                std::uint32_t* sums, LaneFaults& faults) {
  plain::unpack_lanes(pattern, words, count, sums, faults);
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::ScalableTag<std::uint32_t> kWords;
constexpr Int32s kInts;
constexpr hn::ScalableTag<std::uint8_t> kCodes;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
constexpr std::size_t kRun = 4 * kLanes;  // elements whose codes fill a vector
using Floats = hn::Vec<hn::ScalableTag<float> >;

// (h + 1/2) / 2^16 of the draws of a vector of elements.
HWY_INLINE Floats draws_of(const std::byte* draws, std::size_t i) {
  const hn::Rebind<std::uint16_t, hn::ScalableTag<float> > narrow;
  const auto* words = reinterpret_cast<const std::uint16_t*>(draws);
  const auto word = hn::PromoteTo(kInts, hn::LoadU(narrow, words + i));
  return hn::Mul(hn::Add(hn::ConvertTo(kFloats, word), hn::Set(kFloats, 0.5f)),
                 hn::Set(kFloats, 0x1p-16f));
}

void simd_levels(const LevelPlace<float>& place, std::span<const float> x, const std::byte* draws,
                 std::uint8_t* codes) {
  const auto clip = hn::Set(kFloats, place.clip);
  const auto before = hn::Set(kFloats, place.before);
  const auto by = hn::Set(kFloats, place.by);
  const auto most = hn::Set(kFloats, place.most);
  const auto one = hn::Set(kFloats, 1.0f);
  std::size_t i = 0;
  for (; i + kRun <= x.size(); i += kRun) {
    hn::Vec<Int32s> parts[4];
    for (std::size_t v = 0; v < 4; ++v) {
      const std::size_t at = i + v * kLanes;
      fetch_ahead(x.data() + at);
      const Floats value = hn::LoadU(kFloats, x.data() + at);
      const Floats magnitude = hn::Min(hn::Abs(value), clip);
      const Floats a = hn::Min(hn::Mul(hn::Mul(magnitude, before), by), most);
      const Floats whole = hn::Trunc(a);
      const auto up = hn::Lt(draws_of(draws, at), hn::Sub(a, whole));
      const Floats level = hn::Add(whole, hn::IfThenElseZero(up, one));
      parts[v] = nearest(hn::Add(most, hn::CopySignToAbs(level, value)));
    }
    hn::StoreU(unsigned_bytes_of(halves(parts)), kCodes, codes + i);
  }
  plain::code_levels(place, x.subspan(i), draws + 2 * i, codes + i);
}

template <bool Uniform>
HWY_INLINE Floats cell_of(const CellPlace<float>& place, const CellTable& table, Floats x,
                          Floats u) {
  const Floats scaled =
      hn::Mul(hn::Mul(x, hn::Set(kFloats, place.before)), hn::Set(kFloats, place.by));
  const Floats grid = hn::Set(kFloats, place.grid);
  const Floats at =
      hn::Min(hn::Max(hn::Add(scaled, hn::Set(kFloats, place.half)), hn::Zero(kFloats)), grid);
  const Floats cell = hn::Min(hn::Trunc(at), hn::Sub(grid, hn::Set(kFloats, 1.0f)));
  Floats low = cell;
  Floats gap = hn::Set(kFloats, 1.0f);
  if constexpr (!Uniform) {
    const auto index = nearest(cell);
    low = hn::GatherIndex(kFloats, table.below.data(), index);
    gap = hn::GatherIndex(kFloats, table.gap.data(), index);
  }
  const auto up = hn::Lt(hn::Mul(u, gap), hn::Sub(at, low));
  return hn::Add(low, hn::IfThenElseZero(up, gap));
}

template <bool Uniform>
HWY_INLINE std::size_t cell_runs(const CellPlace<float>& place, const CellTable& table,
                                 std::span<const float> x, const std::byte* draws,
                                 std::uint8_t* codes) {
  std::size_t i = 0;
  for (; i + kRun <= x.size(); i += kRun) {
    hn::Vec<Int32s> parts[4];
    for (std::size_t v = 0; v < 4; ++v) {
      const std::size_t at = i + v * kLanes;
      fetch_ahead(x.data() + at);
      parts[v] = nearest(
          cell_of<Uniform>(place, table, hn::LoadU(kFloats, x.data() + at), draws_of(draws, at)));
    }
    hn::StoreU(unsigned_bytes_of(halves(parts)), kCodes, codes + i);
  }
  return i;
}

void simd_cells(const CellPlace<float>& place, const CellTable& table, std::span<const float> x,
                const std::byte* draws, std::uint8_t* codes) {
  const std::size_t done = table.uniform ? cell_runs<true>(place, table, x, draws, codes)
                                         : cell_runs<false>(place, table, x, draws, codes);
  plain::code_cells(place, table, x.subspan(done), draws + 2 * done, codes + done);
}

template <typename Sum>
HWY_INLINE void values(const Sum* sums, std::int64_t zero, float factor, std::span<float> out) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // so that 2 sum - zero fits 32 bits
  std::size_t i = 0;
  if (zero < kMost) {
    const auto middle = hn::Set(kInts, static_cast<std::int32_t>(zero));
    const auto by = hn::Set(kFloats, factor);
    for (; i + kLanes <= out.size(); i += kLanes) {
      hn::Vec<Int32s> sum;
      if constexpr (sizeof(Sum) == 1) {
        const hn::Rebind<std::uint8_t, Int32s> bytes;
        sum = hn::PromoteTo(kInts, hn::LoadU(bytes, sums + i));
      } else {
        sum = hn::BitCast(kInts, hn::LoadU(kWords, sums + i));
      }
      const auto twice = hn::Sub(hn::Add(sum, sum), middle);
      hn::StoreU(hn::Mul(hn::ConvertTo(kFloats, twice), by), kFloats, out.data() + i);
    }
  }
  plain::values_of(sums + i, zero, factor, out.subspan(i));
}

void simd_byte_values(const std::uint8_t* sums, std::int64_t zero, float factor,
                      std::span<float> out) {
  values(sums, zero, factor, out);
}
void simd_word_values(const std::uint32_t* sums, std::int64_t zero, float factor,
                      std::span<float> out) {
  values(sums, zero, factor, out);
}

void simd_lanes(const LanePattern& pattern, const std::byte* words, std::size_t count,
                std::uint32_t* sums, LaneFaults& faults) {
  const auto mask = hn::Set(kWords, pattern.mask);
  auto largest = hn::Zero(kWords);
  auto any = hn::Zero(kWords);
  std::size_t w = 0;
  for (; w + kLanes <= count; w += kLanes) {
    const auto some = hn::LoadU(kWords, reinterpret_cast<const std::uint32_t*>(words) + w);
    any = hn::Or(any, some);
    std::uint32_t* const to = sums + w * pattern.lanes;
    for (std::size_t v = 0; v < pattern.lanes; ++v) {
      const auto places = hn::SetTableIndices(
          kWords, reinterpret_cast<const std::int32_t*>(pattern.word.data()) + v * kLanes);
      const auto lanes = hn::TableLookupLanes(some, places);
      const auto by = hn::LoadU(kWords, pattern.shift.data() + v * kLanes);
      const auto sum = hn::And(hn::Shr(lanes, by), mask);
      largest = hn::Max(largest, sum);
      hn::StoreU(sum, kWords, to + v * kLanes);
    }
  }
  faults.largest = std::max(faults.largest, hn::GetLane(hn::MaxOfLanes(kWords, largest)));
  alignas(64) std::uint32_t bits[kLanes];
  hn::Store(any, kWords, bits);
  const std::size_t used = pattern.lanes * static_cast<std::size_t>(pattern.width);
  for (const std::uint32_t each : bits) faults.free |= used < 32 ? each >> used : 0;
  plain::unpack_lanes(pattern, words + 4 * w, count - w, sums + w * pattern.lanes, faults);
}

#endif

void simd_pack_lanes(std::size_t lanes, int width, std::span<const std::uint8_t> codes,
                     std::byte* words) {
  std::size_t w = 0;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  // One instruction takes the low bits of eight bytes together. Sixteen are read.
  constexpr std::size_t kMost = 15;
  if (width <= 8 && lanes <= kMost) {
    const std::uint64_t places = 0x0101010101010101u * ((std::uint64_t{1} << width) - 1);
    const auto first_bytes = [places](std::size_t bytes) {
      return bytes >= 8 ? places : places & ((std::uint64_t{1} << (8 * bytes)) - 1);
    };
    const std::uint64_t low = first_bytes(lanes);
    const std::uint64_t high = lanes > 8 ? first_bytes(lanes - 8) : 0;
    for (; w * lanes + 16 <= codes.size(); ++w) {
      std::uint64_t apart[2];
      std::memcpy(apart, codes.data() + w * lanes, sizeof(apart));
      const std::uint64_t word = _pext_u64(apart[0], low) | _pext_u64(apart[1], high)
                                                                << (8 * width % 64);
      store_le(words, static_cast<std::uint32_t>(word), w);
    }
  }
#endif
  plain::pack_lanes(lanes, width, codes.subspan(w * lanes), words + 4 * w);
}

}  // namespace shared_scale_lanes

using shared_scale_lanes::simd_byte_values;
using shared_scale_lanes::simd_cells;
using shared_scale_lanes::simd_lanes;
using shared_scale_lanes::simd_levels;
using shared_scale_lanes::simd_pack_lanes;
using shared_scale_lanes::simd_word_values;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire {

LanePattern::LanePattern(std::size_t lane_count, int lane_width)
    : lanes(lane_count), width(lane_width), mask(lane_width == 32 ? ~0u : (1u << lane_width) - 1) {
  for (std::size_t e = 0; e < kWords * lanes; ++e) {
    word[e] = static_cast<std::uint32_t>(e / lanes);
    shift[e] = static_cast<std::uint32_t>(e % lanes) * static_cast<std::uint32_t>(width);
  }
}

namespace cpu {

void plain::unpack_lanes(const LanePattern& pattern, const std::byte* words, std::size_t count,
                         std::uint32_t* sums, LaneFaults& faults) {
  const std::size_t used = pattern.lanes * static_cast<std::size_t>(pattern.width);
  for (std::size_t w = 0; w < count; ++w) {
    const auto word = load_le<std::uint32_t>(words, w);
    for (std::size_t j = 0; j < pattern.lanes; ++j) {
      const std::uint32_t sum = (word >> pattern.shift[j]) & pattern.mask;
      sums[w * pattern.lanes + j] = sum;
      faults.largest = std::max(faults.largest, sum);
    }
    if (used < 32) faults.free |= word >> used;
  }
}

namespace simd {

HWY_EXPORT(simd_levels);
HWY_EXPORT(simd_cells);
HWY_EXPORT(simd_byte_values);
HWY_EXPORT(simd_word_values);
HWY_EXPORT(simd_lanes);
HWY_EXPORT(simd_pack_lanes);

void code_levels(const LevelPlace<float>& place, std::span<const float> x, const std::byte* draws,
                 std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(simd_levels)(place, x, draws, codes);
}
void code_cells(const CellPlace<float>& place, const CellTable& table, std::span<const float> x,
                const std::byte* draws, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(simd_cells)(place, table, x, draws, codes);
}
void values_of(const std::uint8_t* sums, std::int64_t zero, float factor, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(simd_byte_values)(sums, zero, factor, out);
}
void values_of(const std::uint32_t* sums, std::int64_t zero, float factor, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(simd_word_values)(sums, zero, factor, out);
}
void pack_lanes(std::size_t lanes, int width, std::span<const std::uint8_t> codes,
                std::byte* words) {
  HWY_DYNAMIC_DISPATCH(simd_pack_lanes)(lanes, width, codes, words);
}
void unpack_lanes(const LanePattern& pattern, const std::byte* words, std::size_t count,
                  std::uint32_t* sums, LaneFaults& faults) {
  HWY_DYNAMIC_DISPATCH(simd_lanes)(pattern, words, count, sums, faults);
}

}  // namespace simd
}  // namespace cpu
}  // namespace gradwire
#endif
