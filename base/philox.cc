#include "base/philox.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gradwire {
namespace {

// Eight 32-bit words in 64-bit lanes, one vector register where registers have 512 bits. (Compilers
// make no vectors of a loop that multiplies from 32 to 64 bits.)
constexpr std::size_t kLanes = 8;
using Lanes [[gnu::vector_size(64)]] = std::uint64_t;
constexpr std::uint64_t kLow = 0xffffffffu;

// Full products with words whose upper halves are zero.
inline void multiply(const Lanes& words, std::uint64_t factor, Lanes& products) {
#ifdef __AVX512F__
  const Lanes factors = factor - Lanes{};
  products = reinterpret_cast<Lanes>(_mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(words),
                                                            reinterpret_cast<__m512i>(factors)));
#else
  products = words * factor;
#endif
}

// Blocks first ... first + 7 of philox4x32, in the order of word().
void block_run(std::uint64_t first, std::uint64_t step, std::uint64_t key,
               std::span<std::uint32_t, 4 * kLanes> out) {
  const Lanes index = first + Lanes{0, 1, 2, 3, 4, 5, 6, 7};
  Lanes c0 = index & kLow;
  Lanes c1 = index >> 32;
  Lanes c2 = (step & kLow) - Lanes{};
  Lanes c3 = (step >> 32) - Lanes{};
  std::uint64_t key0 = key & kLow;
  std::uint64_t key1 = key >> 32;
  for (int round = 0; round < 10; ++round) {
    Lanes a;
    Lanes b;
    multiply(c0, 0xD2511F53u, a);
    multiply(c2, 0xCD9E8D57u, b);
    c0 = (b >> 32) ^ c1 ^ key0;
    c1 = b & kLow;
    c2 = (a >> 32) ^ c3 ^ key1;
    c3 = a & kLow;
    key0 = (key0 + 0x9E3779B9u) & kLow;
    key1 = (key1 + 0xBB67AE85u) & kLow;
  }
  const Lanes low = c0 | c1 << 32;
  const Lanes high = c2 | c3 << 32;
  for (std::size_t i = 0; i < kLanes; ++i) {
    out[4 * i] = static_cast<std::uint32_t>(low[i]);
    out[4 * i + 1] = static_cast<std::uint32_t>(low[i] >> 32);
    out[4 * i + 2] = static_cast<std::uint32_t>(high[i]);
    out[4 * i + 3] = static_cast<std::uint32_t>(high[i] >> 32);
  }
}

}  // namespace

void RandomStream::words(std::uint64_t first, std::span<std::uint32_t> out) const {
  std::uint64_t index = first / 4;
  std::size_t skip = first % 4;
  std::size_t done = 0;
  while (done < out.size()) {
    if (skip == 0 && out.size() - done >= 4 * kLanes) {
      block_run(index, step_, key_, out.subspan(done).first<4 * kLanes>());
      done += 4 * kLanes;
    } else {
      std::array<std::uint32_t, 4 * kLanes> some;
      block_run(index, step_, key_, some);
      const std::size_t count = std::min(out.size() - done, some.size() - skip);
      std::copy_n(some.begin() + skip, count, out.begin() + static_cast<std::ptrdiff_t>(done));
      done += count;
      skip = 0;
    }
    index += kLanes;
  }
}

double RandomStream::normal(std::uint64_t element) const {
  const double u = (static_cast<double>(word(2 * element)) + 1.0) * 0x1p-32;  // (0, 1]
  const double v = static_cast<double>(word(2 * element + 1)) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace gradwire
