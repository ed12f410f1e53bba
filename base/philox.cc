#include "base/philox.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace gradwire {
namespace {

// Eight 32-bit words in the lower halves of 64-bit lanes, one vector register where registers have
// 512 bits. (Compilers make no vectors of a loop that multiplies from 32 to 64 bits.) The upper
// halves hold leftovers: products ignore them and block_run() drops them at its end.
constexpr std::size_t kLanes = 8;
constexpr std::size_t kRuns = 2;  // side by side, since a round's latency is twice its work
constexpr std::size_t kWords = 4 * kLanes * kRuns;
using Lanes [[gnu::vector_size(64)]] = std::uint64_t;
constexpr std::uint64_t kLow = 0xffffffffu;

// Full products of the lower halves.
inline void multiply(const Lanes& words, std::uint64_t factor, Lanes& products) {
#ifdef __AVX512F__
  const Lanes factors = factor - Lanes{};
  products = reinterpret_cast<Lanes>(_mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(words),
                                                            reinterpret_cast<__m512i>(factors)));
#else
  products = (words & kLow) * factor;
#endif
}

struct Counters {
  Lanes c0;
  Lanes c1;
  Lanes c2;
  Lanes c3;
};

inline void one_round(Counters& c, std::uint64_t key0, std::uint64_t key1) {
  Lanes a;
  Lanes b;
  multiply(c.c0, 0xD2511F53u, a);
  multiply(c.c2, 0xCD9E8D57u, b);
  c.c0 = (b >> 32) ^ c.c1 ^ key0;
  c.c1 = b;
  c.c2 = (a >> 32) ^ c.c3 ^ key1;
  c.c3 = a;
}

// The words in the order of word(): block by block.
inline void store(const Counters& c, std::uint32_t* out) {
  const Lanes low = (c.c0 & kLow) | c.c1 << 32;
  const Lanes high = (c.c2 & kLow) | c.c3 << 32;
  const Lanes first = __builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11);
  const Lanes second = __builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15);
  std::memcpy(out, &first, sizeof(first));
  std::memcpy(out + 2 * kLanes, &second, sizeof(second));
}

// Blocks first ... first + 15 of philox4x32.
void block_run(std::uint64_t first, std::uint64_t step, std::uint64_t key,
               std::span<std::uint32_t, kWords> out) {
  std::array<Counters, kRuns> runs;
  for (std::size_t r = 0; r < kRuns; ++r) {
    const Lanes index = (first + r * kLanes) + Lanes{0, 1, 2, 3, 4, 5, 6, 7};
    runs[r] = {index, index >> 32, step - Lanes{}, (step >> 32) - Lanes{}};
  }
  std::uint64_t key0 = key & kLow;
  std::uint64_t key1 = key >> 32;
  for (int round = 0; round < 10; ++round) {
    for (Counters& run : runs) one_round(run, key0, key1);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (std::size_t r = 0; r < kRuns; ++r) store(runs[r], out.data() + r * 4 * kLanes);
}

}  // namespace

void RandomStream::words(std::uint64_t first, std::span<std::uint32_t> out) const {
  std::uint64_t index = first / 4;
  std::size_t skip = first % 4;
  std::size_t done = 0;
  while (done < out.size()) {
    if (skip == 0 && out.size() - done >= kWords) {
      block_run(index, step_, key_, out.subspan(done).first<kWords>());
      done += kWords;
    } else {
      std::array<std::uint32_t, kWords> some;
      block_run(index, step_, key_, some);
      const std::size_t count = std::min(out.size() - done, some.size() - skip);
      std::copy_n(some.begin() + skip, count, out.begin() + static_cast<std::ptrdiff_t>(done));
      done += count;
      skip = 0;
    }
    index += kLanes * kRuns;
  }
}

double RandomStream::normal(std::uint64_t element) const {
  const double u = (static_cast<double>(word(2 * element)) + 1.0) * 0x1p-32;  // (0, 1]
  const double v = static_cast<double>(word(2 * element + 1)) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace gradwire
