// Keyed hashes for the rendezvous: the only place where gradwire touches cryptography.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "gradwire/tensor.h"

namespace gradwire::rendezvous {

using Mac = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 16>;

// HMAC-SHA256 (RFC 2104, FIPS 180-4) of the parts, each preceded by its length as 8 bytes little
// endian, so that no two lists of parts feed the same bytes.
Mac hmac(ConstByteSpan key, std::initializer_list<ConstByteSpan> parts);

// What a cryptographic library is asked for: OpenSSL's libcrypto (sha256_openssl.cc) or libsodium
// (sha256_sodium.cc), in a wheel for other machines. HMAC-SHA256 of `text`, and a comparison that
// takes the same time whatever the bytes are.
Mac hmac_sha256(ConstByteSpan key, ConstByteSpan text);
bool equal(const Mac& a, const Mac& b);

// From the kernel's random source.
Nonce random_nonce();

// `bytes` random bytes as lower-case hexadecimal text: a secret that fits into a variable.
std::string random_hex(std::size_t bytes);
std::string to_hex(ConstByteSpan bytes);

inline ConstByteSpan bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string text_of_bytes(ConstByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace gradwire::rendezvous
