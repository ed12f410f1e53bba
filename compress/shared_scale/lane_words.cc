#include "compress/shared_scale/lane_words.h"

#include <algorithm>
#include <array>
#include <utility>

#include "compress/little_endian.h"
#include "compress/qsgd/code_packing.h"
#include "compress/simd/nibbles.h"

namespace gradwire {
namespace {

// Lanes: known to the compiler, which then unrolls a word.
template <std::size_t Lanes>
void pack_words(const std::uint8_t* codes, std::size_t count, int width, std::byte* words) {
  if (Lanes * static_cast<std::size_t>(width) == 32) {  // no free bits: as any stream of codes
    if (width == 4) return cpu::pack_nibbles(codes, 4 * count, words);
    if (width == 2) return pack_groups<2>(codes, 2 * count, words);
  }
  for (std::size_t w = 0; w < count; ++w) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < Lanes; ++j) {
      word |= std::uint32_t{codes[w * Lanes + j]} << (static_cast<int>(j) * width);
    }
    store_le(words, word, w);
  }
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

}  // namespace gradwire
