#include "compress/simd/dither_bytes.h"

#include <algorithm>

#include "compress/little_endian.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/simd/dither_bytes.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace dither_bytes_lanes {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

template <int Rounds>
void write_blocks(const RandomStream& stream, std::uint64_t first, std::size_t blocks,
                  std::uint8_t* bytes) {
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto words = stream.block<Rounds>(first + b);
    for (std::size_t w = 0; w < 4; ++w) {
      store_le(reinterpret_cast<std::byte*>(bytes), words[w], 4 * b + w);
    }
  }
}

#else

// A word of several blocks, in the low halves of 64-bit lanes. The high halves hold leftovers,
// which products ignore and interleave() drops.
constexpr hn::ScalableTag<std::uint64_t> kWide;
constexpr hn::ScalableTag<std::uint32_t> kWords;
constexpr std::size_t kLanes = hn::MaxLanes(kWide);
// Side by side, since a round's latency is more than its work; registers hold so many.
constexpr std::size_t kRuns = HWY_TARGET == HWY_AVX3 ? 4 : 2;
using Wide = hn::Vec<hn::ScalableTag<std::uint64_t> >;

struct Counters {
  Wide c0;
  Wide c1;
  Wide c2;
  Wide c3;
};

HWY_INLINE Wide product(Wide words, Wide factor) {
  return hn::MulEven(hn::BitCast(kWords, words), hn::BitCast(kWords, factor));
}

HWY_INLINE void one_round(Counters& c, Wide factor0, Wide factor1, Wide key0, Wide key1) {
  const Wide a = product(c.c0, factor0);
  const Wide b = product(c.c2, factor1);
  c.c0 = hn::Xor3(hn::ShiftRight<32>(b), c.c1, key0);
  c.c1 = b;
  c.c2 = hn::Xor3(hn::ShiftRight<32>(a), c.c3, key1);
  c.c3 = a;
}

// The words in the order of blocks.
HWY_INLINE void store(const Counters& c, std::uint8_t* bytes) {
  const Wide low_half = hn::Set(kWide, 0xffffffffu);
  const Wide low = hn::Or(hn::And(c.c0, low_half), hn::ShiftLeft<32>(c.c1));
  const Wide high = hn::Or(hn::And(c.c2, low_half), hn::ShiftLeft<32>(c.c3));
  hn::StoreInterleaved2(low, high, kWide, reinterpret_cast<std::uint64_t*>(bytes));
}

// The rounds' keys, in every lane.
template <std::size_t Rounds>
struct Schedule {
  explicit Schedule(std::uint64_t key) {
    auto low = static_cast<std::uint32_t>(key);
    auto high = static_cast<std::uint32_t>(key >> 32);
    for (std::size_t round = 0; round < Rounds; ++round) {
      key0[round] = hn::Set(kWide, low);
      key1[round] = hn::Set(kWide, high);
      low += 0x9E3779B9u;
      high += 0xBB67AE85u;
    }
  }
  Wide key0[Rounds];
  Wide key1[Rounds];
};

template <std::size_t Runs, std::size_t Rounds>
HWY_INLINE void block_runs(const Schedule<Rounds>& keys, std::uint64_t step_number,
                           std::uint64_t first, std::uint8_t* bytes) {
  const Wide step = hn::Set(kWide, step_number);
  const Wide factor0 = hn::Set(kWide, 0xD2511F53u);
  const Wide factor1 = hn::Set(kWide, 0xCD9E8D57u);
  Counters runs[Runs];
  for (std::size_t r = 0; r < Runs; ++r) {
    const Wide index = hn::Add(hn::Set(kWide, first + r * kLanes), hn::Iota(kWide, 0));
    runs[r] = {index, hn::ShiftRight<32>(index), step, hn::ShiftRight<32>(step)};
  }
  for (std::size_t round = 0; round < Rounds; ++round) {
    for (Counters& run : runs) {
      one_round(run, factor0, factor1, keys.key0[round], keys.key1[round]);
    }
  }
  for (std::size_t r = 0; r < Runs; ++r) store(runs[r], bytes + r * kLanes * kBlockDraws);
}

template <std::size_t Rounds>
void write_blocks(const RandomStream& stream, std::uint64_t first, std::size_t blocks,
                  std::uint8_t* bytes) {
  constexpr std::size_t kBlocks = kRuns * kLanes;
  const Schedule<Rounds> keys(stream.key());
  const std::uint64_t step = stream.step();
  std::size_t done = 0;
  for (; done + kBlocks <= blocks; done += kBlocks) {
    block_runs<kRuns, Rounds>(keys, step, first + done, bytes + done * kBlockDraws);
  }
  for (; done + kLanes <= blocks; done += kLanes) {
    block_runs<1, Rounds>(keys, step, first + done, bytes + done * kBlockDraws);
  }
  if (done == blocks) return;
  alignas(64) std::uint8_t some[kLanes * kBlockDraws];
  block_runs<1, Rounds>(keys, step, first + done, some);
  std::copy_n(some, (blocks - done) * kBlockDraws, bytes + done * kBlockDraws);
}

#endif

void simd_dither_bytes(const RandomStream& stream, std::uint64_t first, std::size_t blocks,
                       std::uint8_t* bytes) {
  write_blocks<7>(stream, first, blocks, bytes);
}
void simd_dither_words(const RandomStream& stream, std::uint64_t first, std::size_t blocks,
                       std::uint8_t* bytes) {
  write_blocks<10>(stream, first, blocks, bytes);
}

}  // namespace dither_bytes_lanes

using dither_bytes_lanes::simd_dither_bytes;
using dither_bytes_lanes::simd_dither_words;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu {

HWY_EXPORT(simd_dither_bytes);
HWY_EXPORT(simd_dither_words);

void dither_bytes(const RandomStream& stream, std::uint64_t first, std::size_t blocks,
                  std::uint8_t* bytes) {
  HWY_DYNAMIC_DISPATCH(simd_dither_bytes)(stream, first, blocks, bytes);
}
void dither_words(const RandomStream& stream, std::uint64_t first, std::size_t blocks,
                  std::uint8_t* bytes) {
  HWY_DYNAMIC_DISPATCH(simd_dither_words)(stream, first, blocks, bytes);
}

}  // namespace gradwire::cpu
#endif
