#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <new>

#include "base/check.h"
#include "comm/rendezvous/hmac.h"

namespace gradwire::rendezvous {

Mac hmac_sha256(ConstByteSpan key, ConstByteSpan text) {
  Mac mac{};
  unsigned int size = 0;
  const unsigned char* const made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(mac.data()), &size);
  if (made == nullptr) throw std::bad_alloc();  // with a key and a digest, only memory can lack
  GW_CHECK(size == mac.size());
  return mac;
}

bool equal(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace gradwire::rendezvous
