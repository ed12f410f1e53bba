#include "compress/randomk/places.h"

#include <algorithm>
#include <array>
#include <bit>

namespace gradwire {
void draw_places(const RandomStream& stream, std::size_t elems, std::span<std::uint32_t> places,
                 std::vector<std::uint64_t>& seen) {
  constexpr std::size_t kDraws = 512;
  std::array<std::uint32_t, 2 * kDraws> words;
  seen.assign((elems + 63) / 64, 0);
  const std::size_t k = places.size();
  for (std::size_t first = 0; first < k; first += kDraws) {
    const std::size_t count = std::min(kDraws, k - first);
    stream.words(2 * first, std::span(words).first(2 * count));
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t last = elems - k + first + i;
      std::uint64_t place = place_below(last + 1, words[2 * i], words[2 * i + 1]);
      if ((seen[place / 64] >> (place % 64) & 1u) != 0) place = last;
      seen[place / 64] |= std::uint64_t{1} << (place % 64);
    }
  }
  std::size_t found = 0;
  for (std::size_t w = 0; found < k; ++w) {
    for (std::uint64_t bits = seen[w]; bits != 0; bits &= bits - 1) {
      places[found++] =
          static_cast<std::uint32_t>(64 * w + static_cast<std::size_t>(std::countr_zero(bits)));
    }
  }
}

}  // namespace gradwire
