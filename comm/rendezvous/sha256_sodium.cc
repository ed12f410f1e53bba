#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/utils.h>

#include "base/check.h"
#include "comm/rendezvous/hmac.h"

namespace gradwire::rendezvous {

// Neither function needs sodium_init(): that chooses implementations of others.
Mac hmac_sha256(ConstByteSpan key, ConstByteSpan text) {
  Mac mac{};
  static_assert(sizeof(mac) == crypto_auth_hmacsha256_BYTES);
  const auto bytes = [](ConstByteSpan span) {
    return reinterpret_cast<const unsigned char*>(span.data());
  };
  crypto_auth_hmacsha256_state state;
  const bool done =
      crypto_auth_hmacsha256_init(&state, bytes(key), key.size()) == 0 &&
      crypto_auth_hmacsha256_update(&state, bytes(text), text.size()) == 0 &&
      crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(mac.data())) == 0;
  GW_CHECK(done);
  sodium_memzero(&state, sizeof state);
  return mac;
}

bool equal(const Mac& a, const Mac& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace gradwire::rendezvous
