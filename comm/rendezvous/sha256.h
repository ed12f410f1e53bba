// What gradwire takes from a cryptographic library: two functions, of OpenSSL's libcrypto
// (sha256_openssl.cc) or of libsodium (sha256_sodium.cc), in a wheel for other machines.
#pragma once

#include "comm/rendezvous/hmac.h"
#include "gradwire/tensor.h"

namespace gradwire::rendezvous {

// HMAC-SHA256 (RFC 2104, FIPS 180-4) of `text`.
Mac hmac_sha256(ConstByteSpan key, ConstByteSpan text);

// Whether both are the same, in a time that does not depend on what they are.
bool same_in_constant_time(ConstByteSpan a, ConstByteSpan b);

}  // namespace gradwire::rendezvous
