// Keyed hashes for the rendezvous: the only place where gradwire touches cryptography.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>

#include "gradwire/tensor.h"

namespace gradwire::rendezvous {

using Mac = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 16>;

// HMAC-SHA256 (RFC 2104, FIPS 180-4) of the parts, each preceded by its length as 8 bytes little
// endian, so that no two lists of parts feed the same bytes.
Mac hmac(ConstByteSpan key, std::initializer_list<ConstByteSpan> parts);

// Takes the same time whatever the bytes are.
bool equal(const Mac& a, const Mac& b);

// From the kernel's random source.
Nonce random_nonce();

// `bytes` random bytes as lower-case hexadecimal text: a secret that fits into a variable.
std::string random_hex(std::size_t bytes);
std::string to_hex(ConstByteSpan bytes);

}  // namespace gradwire::rendezvous
