#include "compress/shared_scale/lane_words.h"

#include <algorithm>
#include <array>
#include <utility>

#include "compress/little_endian.h"

namespace gradwire {
namespace {

// Lanes: known to the compiler, which then unrolls a word.
template <std::size_t Lanes>
void pack_words(const std::uint8_t* codes, std::size_t count, int width, std::byte* words) {
  for (std::size_t w = 0; w < count; ++w) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < Lanes; ++j) {
      word |= std::uint32_t{codes[w * Lanes + j]} << (static_cast<int>(j) * width);
    }
    store_le(words, word, w);
  }
}

// Returns the largest lane, and collects bits beyond the last one in `free`.
template <std::size_t Lanes>
std::uint32_t unpack_words(const std::byte* words, std::size_t count, int width,
                           std::uint32_t* sums, std::uint32_t& free) {
  const int used = static_cast<int>(Lanes) * width;
  const std::uint32_t mask = width == 32 ? ~0u : (1u << width) - 1;
  std::uint32_t largest = 0;
  for (std::size_t w = 0; w < count; ++w) {
    const auto word = load_le<std::uint32_t>(words, w);
    for (std::size_t j = 0; j < Lanes; ++j) {
      const std::uint32_t sum = (word >> (static_cast<int>(j) * width)) & mask;
      sums[w * Lanes + j] = sum;
      largest = std::max(largest, sum);
    }
    if (used < 32) free |= word >> used;
  }
  return largest;
}

// Calls f.operator()<lanes>().
template <typename F>
auto with_lanes(std::size_t lanes, const F& f) {
  switch (lanes) {
    case 32: return f.template operator()<32>();
    case 16: return f.template operator()<16>();
    case 10: return f.template operator()<10>();
    case 8: return f.template operator()<8>();
    case 6: return f.template operator()<6>();
    case 5: return f.template operator()<5>();
    case 4: return f.template operator()<4>();
    case 3: return f.template operator()<3>();
    case 2: return f.template operator()<2>();
    default: return f.template operator()<1>();
  }
}

constexpr std::size_t kMostLanes = 32;

}  // namespace

void LaneWords::pack(std::span<const std::uint8_t> codes, std::byte* words) const {
  const std::size_t whole = codes.size() / lanes();
  std::array<std::uint8_t, kMostLanes> last{};
  std::copy(codes.begin() + static_cast<std::ptrdiff_t>(whole * lanes()), codes.end(),
            last.begin());
  with_lanes(lanes(), [&]<std::size_t Lanes>() {
    pack_words<Lanes>(codes.data(), whole, width_, words);
    if (whole * Lanes < codes.size()) pack_words<Lanes>(last.data(), 1, width_, words + 4 * whole);
  });
}

bool LaneWords::unpack(const std::byte* words, std::span<std::uint32_t> sums) const {
  const std::size_t whole = sums.size() / lanes();
  const std::size_t rest = sums.size() - whole * lanes();
  std::array<std::uint32_t, kMostLanes> last{};
  std::uint32_t largest = 0;
  std::uint32_t free = 0;
  with_lanes(lanes(), [&]<std::size_t Lanes>() {
    largest = unpack_words<Lanes>(words, whole, width_, sums.data(), free);
    if (rest == 0) return;
    largest =
        std::max(largest, unpack_words<Lanes>(words + 4 * whole, 1, width_, last.data(), free));
  });
  std::copy_n(last.begin(), rest, sums.end() - static_cast<std::ptrdiff_t>(rest));
  for (std::size_t j = rest; j < last.size(); ++j) free |= last[j];
  return free == 0 && largest <= limit_;
}

}  // namespace gradwire
