#include "comm/tcp/greeting.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

namespace gradwire::tcp {
namespace {

using rendezvous::bytes_of_text;
using rendezvous::Mac;
using rendezvous::Nonce;

constexpr std::array<char, 8> kMagic{'g', 'w', '-', 't', 'c', 'p', '1', '\n'};
static_assert(std::endian::native == std::endian::little, "a hello is sent as it lies in memory");

struct HelloBytes {
  std::array<char, 8> magic;
  std::uint8_t kind, zero;
  std::uint16_t from, to, zeros;
  Nonce nonce;
};
static_assert(sizeof(HelloBytes) == kHelloBytes);

Mac mac_at(ConstByteSpan bytes) {
  Mac mac{};
  std::copy_n(bytes.begin(), mac.size(), mac.begin());
  return mac;
}

// What `who` says behind the hello and what came last.
Mac mac_of(const Mac& key, std::string_view who, ConstByteSpan hello, ConstByteSpan last) {
  return rendezvous::hmac(key, {bytes_of_text(who), hello, last});
}

}  // namespace

std::vector<std::byte> encode(const Hello& hello) {
  const HelloBytes sent{kMagic,
                        static_cast<std::uint8_t>(hello.kind),
                        0,
                        static_cast<std::uint16_t>(hello.from),
                        static_cast<std::uint16_t>(hello.to),
                        0,
                        hello.nonce};
  const auto bytes = std::as_bytes(std::span(&sent, 1));
  return {bytes.begin(), bytes.end()};
}

std::optional<Hello> decode_hello(ConstByteSpan bytes) {
  HelloBytes sent{};
  if (bytes.size() != sizeof sent) return std::nullopt;
  std::memcpy(&sent, bytes.data(), sizeof sent);
  const bool known = sent.magic == kMagic && (sent.kind == 1 || sent.kind == 2);
  if (!known || sent.zero != 0 || sent.zeros != 0) return std::nullopt;
  return Hello{static_cast<LinkKind>(sent.kind), sent.from, sent.to, sent.nonce};
}

Mac greeting_key(std::string_view secret, std::string_view job, std::string_view token) {
  return rendezvous::hmac(bytes_of_text("gradwire tcp"),
                          {bytes_of_text(secret), bytes_of_text(job), bytes_of_text(token)});
}

std::vector<std::byte> make_challenge(const Mac& key, ConstByteSpan hello, const Nonce& nonce) {
  std::vector<std::byte> challenge(nonce.begin(), nonce.end());
  const Mac mac = mac_of(key, "acceptor", hello, nonce);
  challenge.insert(challenge.end(), mac.begin(), mac.end());
  return challenge;
}

bool is_challenge(const Mac& key, ConstByteSpan hello, ConstByteSpan challenge) {
  if (challenge.size() != kChallengeBytes) return false;
  return rendezvous::equal(mac_at(challenge.subspan(sizeof(Nonce))),
                           mac_of(key, "acceptor", hello, challenge.first(sizeof(Nonce))));
}

std::vector<std::byte> make_proof(const Mac& key, ConstByteSpan hello, ConstByteSpan challenge) {
  const Mac mac = mac_of(key, "connector", hello, challenge);
  return {mac.begin(), mac.end()};
}

bool is_proof(const Mac& key, ConstByteSpan hello, ConstByteSpan challenge, ConstByteSpan proof) {
  return proof.size() == kProofBytes &&
         rendezvous::equal(mac_at(proof), mac_of(key, "connector", hello, challenge));
}

}  // namespace gradwire::tcp
