#include "comm/tcp/greeting.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gradwire::tcp {
namespace {

using rendezvous::bytes_of_text;
using rendezvous::Mac;
using rendezvous::Nonce;

constexpr std::string_view kMagic = "gw-tcp1\n";
static_assert(std::endian::native == std::endian::little, "ranks are sent as they lie in memory");

Mac mac_at(ConstByteSpan bytes) {
  Mac mac{};
  std::copy_n(bytes.begin(), mac.size(), mac.begin());
  return mac;
}

Mac challenge_mac(const Mac& key, ConstByteSpan hello, ConstByteSpan nonce) {
  return rendezvous::hmac(key, {bytes_of_text("acceptor"), hello, nonce});
}

Mac proof_mac(const Mac& key, ConstByteSpan hello, ConstByteSpan challenge) {
  return rendezvous::hmac(key, {bytes_of_text("connector"), hello, challenge});
}

}  // namespace

std::vector<std::byte> encode(const Hello& hello) {
  std::vector<std::byte> bytes(kHelloBytes);
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  bytes[8] = static_cast<std::byte>(hello.kind);
  const auto from = static_cast<std::uint16_t>(hello.from);
  const auto to = static_cast<std::uint16_t>(hello.to);
  std::memcpy(&bytes[10], &from, sizeof from);
  std::memcpy(&bytes[12], &to, sizeof to);
  std::memcpy(&bytes[16], hello.nonce.data(), hello.nonce.size());
  return bytes;
}

std::optional<Hello> decode_hello(ConstByteSpan bytes) {
  if (bytes.size() != kHelloBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return std::nullopt;
  const auto kind = std::to_integer<std::uint8_t>(bytes[8]);
  const bool zeros =
      bytes[9] == std::byte{0} && bytes[14] == std::byte{0} && bytes[15] == std::byte{0};
  if ((kind != 1 && kind != 2) || !zeros) return std::nullopt;
  std::uint16_t from = 0, to = 0;
  std::memcpy(&from, &bytes[10], sizeof from);
  std::memcpy(&to, &bytes[12], sizeof to);
  Hello hello{.kind = static_cast<LinkKind>(kind), .from = from, .to = to, .nonce = {}};
  std::memcpy(hello.nonce.data(), &bytes[16], hello.nonce.size());
  return hello;
}

Mac greeting_key(std::string_view secret, std::string_view job, std::string_view token) {
  return rendezvous::hmac(bytes_of_text("gradwire tcp"),
                          {bytes_of_text(secret), bytes_of_text(job), bytes_of_text(token)});
}

std::vector<std::byte> make_challenge(const Mac& key, ConstByteSpan hello, const Nonce& nonce) {
  std::vector<std::byte> challenge(nonce.begin(), nonce.end());
  const Mac mac = challenge_mac(key, hello, nonce);
  challenge.insert(challenge.end(), mac.begin(), mac.end());
  return challenge;
}

bool is_challenge(const Mac& key, ConstByteSpan hello, ConstByteSpan challenge) {
  if (challenge.size() != kChallengeBytes) return false;
  return rendezvous::equal(mac_at(challenge.subspan(sizeof(Nonce))),
                           challenge_mac(key, hello, challenge.first(sizeof(Nonce))));
}

std::vector<std::byte> make_proof(const Mac& key, ConstByteSpan hello, ConstByteSpan challenge) {
  const Mac mac = proof_mac(key, hello, challenge);
  return {mac.begin(), mac.end()};
}

bool is_proof(const Mac& key, ConstByteSpan hello, ConstByteSpan challenge, ConstByteSpan proof) {
  return proof.size() == kProofBytes &&
         rendezvous::equal(mac_at(proof), proof_mac(key, hello, challenge));
}

}  // namespace gradwire::tcp
