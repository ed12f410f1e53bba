#include "comm/rendezvous/hmac.h"

#include <sys/random.h>

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace gradwire::rendezvous {
namespace {

// Requests of at most 256 bytes are never cut short by a signal (getrandom(2)).
void fill_random(ByteSpan out) {
  while (!out.empty()) {
    const std::size_t step = out.size() < 256 ? out.size() : 256;
    GW_CHECK(getrandom(out.data(), step, 0) == static_cast<ssize_t>(step));
    out = out.subspan(step);
  }
}

}  // namespace

Mac hmac(ConstByteSpan key, std::initializer_list<ConstByteSpan> parts) {
  std::vector<std::byte> text;
  for (const ConstByteSpan part : parts) {
    for (int shift = 0; shift < 64; shift += 8)
      text.push_back(static_cast<std::byte>(std::uint64_t{part.size()} >> shift));
    text.insert(text.end(), part.begin(), part.end());
  }
  return hmac_sha256(key, text);
}

Nonce random_nonce() {
  Nonce nonce{};
  fill_random(nonce);
  return nonce;
}

std::string random_hex(std::size_t bytes) {
  std::vector<std::byte> raw(bytes);
  fill_random(raw);
  return to_hex(raw);
}

std::string to_hex(ConstByteSpan bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += kDigits[std::to_integer<unsigned>(b) >> 4];
    text += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

}  // namespace gradwire::rendezvous
