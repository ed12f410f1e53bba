#include "trainer/checkpoint/checksum.h"

#include <xxhash.h>

#include <charconv>

#include "base/text.h"

namespace gradwire {

std::uint64_t checksum_of(ConstByteSpan bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::uint64_t checksum_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::string checksum_text(std::uint64_t checksum) {
  return format("%016llx", static_cast<unsigned long long>(checksum));
}

std::optional<std::uint64_t> checksum_of_text(std::string_view text) {
  if (text.size() != 16 || text.find_first_of("ABCDEF") != std::string_view::npos) {
    return std::nullopt;
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace gradwire
