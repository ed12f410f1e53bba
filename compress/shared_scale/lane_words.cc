#include "compress/shared_scale/lane_words.h"

#include <algorithm>
#include <array>

#include "compress/little_endian.h"
#include "compress/shared_scale/shared_scale_loops.h"
#include "compress/simd/code_words.h"

namespace gradwire {
namespace {

// Lanes: known to the compiler, which then unrolls a word.
template <std::size_t Lanes>
void pack_each(const std::uint8_t* codes, std::size_t count, int width, std::byte* words) {
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

void cpu::plain::pack_lanes(std::size_t lanes, int width, std::span<const std::uint8_t> codes,
                            std::byte* words) {
  with_lanes(lanes, [&]<std::size_t Lanes>() {
    pack_each<Lanes>(codes.data(), codes.size() / Lanes, width, words);
  });
}

void LaneWords::pack(std::span<const std::uint8_t> codes, std::byte* words) const {
  const std::size_t whole = codes.size() / lanes();
  if (lanes() % 8 == 0 && lanes() * static_cast<std::size_t>(width_) == 32) {
    // No free bits: as any stream of codes.
    cpu::pack_words(width_, codes.data(), whole * lanes() / 8, words);
  } else {
    cpu::simd::pack_lanes(lanes(), width_, codes, words);
  }
  if (whole * lanes() == codes.size()) return;
  std::array<std::uint8_t, kMostLanes> last{};
  std::copy(codes.begin() + static_cast<std::ptrdiff_t>(whole * lanes()), codes.end(),
            last.begin());
  cpu::plain::pack_lanes(lanes(), width_, std::span(last).first(lanes()), words + 4 * whole);
}

}  // namespace gradwire
