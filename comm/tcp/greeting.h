// The first bytes on each connection between two ranks: who is it, and does it know the key.
//
//   connector -> acceptor   hello     := "gw-tcp1\n" kind:u8 zero:u8 from:u16 to:u16 zero:u16
//                                        nonce{16}
//   acceptor  -> connector  challenge := nonce{16} mac{32}    mac over "acceptor", hello, nonce
//   connector -> acceptor   proof     := mac{32}   mac over "connector", hello, challenge
//   acceptor  -> connector  welcome   := "welcome\n"
//
// Little-endian; all lengths are fixed, so nothing is allocated because of what a stranger says.
// The key is the acceptor's own: it lies in the rendezvous store as a random token, and the job's
// secret, if there is one, goes into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/rendezvous/hmac.h"
#include "gradwire/tensor.h"

namespace gradwire::tcp {

enum class LinkKind : std::uint8_t { kBulk = 1, kControl = 2 };

struct Hello {
  LinkKind kind = LinkKind::kBulk;
  int from = 0;
  int to = 0;
  rendezvous::Nonce nonce{};
};

inline constexpr std::size_t kHelloBytes = 8 + 8 + 16;
inline constexpr std::size_t kChallengeBytes = 16 + 32;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::string_view kWelcome = "welcome\n";

std::vector<std::byte> encode(const Hello& hello);
// nullopt for what no encode() made.
std::optional<Hello> decode_hello(ConstByteSpan bytes);

// The key of connections to the rank that published `token`.
rendezvous::Mac greeting_key(std::string_view secret, std::string_view job, std::string_view token);

std::vector<std::byte> make_challenge(const rendezvous::Mac& key, ConstByteSpan hello,
                                      const rendezvous::Nonce& nonce);
bool is_challenge(const rendezvous::Mac& key, ConstByteSpan hello, ConstByteSpan challenge);
std::vector<std::byte> make_proof(const rendezvous::Mac& key, ConstByteSpan hello,
                                  ConstByteSpan challenge);
bool is_proof(const rendezvous::Mac& key, ConstByteSpan hello, ConstByteSpan challenge,
              ConstByteSpan proof);

}  // namespace gradwire::tcp
