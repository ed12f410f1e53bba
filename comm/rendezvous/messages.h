// What the rendezvous says on a TCP connection. All integers little endian; nothing here does I/O,
// and every parser takes hostile bytes.
//
//   frame     = length:u32 payload:byte[length] mac:byte[32]?    mac once both sides are proven
//   payload   = type:u8 body
//   hello     = magic:u32 version:u8 sealed:u8 rank:u32 size:u32 nonce:byte[16] job:text
//   challenge = magic:u32 sealed:u8 nonce:byte[16]
//   proof     = mac:byte[32]                        client, then the server in its welcome
//   refuse    = code:u8 again:u8 reason:text        again = 1: the same try may succeed later
//   set       = id:u32 key:text value:byte[rest]
//   get       = id:u32 wait_ms:u32 key:text
//   reply     = id:u32 code:u8 data:byte[rest]      value if code is kOk, else the message
//   bye       =                                     this rank is done with the store
//   text      = size:u16 byte[size]
//
// A connection:  hello ->  <- challenge  proof ->  <- welcome, then set, get and bye with replies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/rendezvous/hmac.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::rendezvous {

inline constexpr std::size_t kMaxKeyBytes = 256;
inline constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxJobBytes = 256;
inline constexpr std::size_t kMaxHandshakeBytes = 1024;                // payload before the welcome
inline constexpr std::size_t kMaxPayloadBytes = kMaxValueBytes + 512;  // and after it
inline constexpr std::uint8_t kVersion = 1;

enum class Kind : std::uint8_t {
  kHello = 1,
  kChallenge,
  kProof,
  kWelcome,
  kRefuse,
  kSet,
  kGet,
  kReply,
  kBye,
};

struct Hello {
  std::uint8_t version = kVersion;
  bool sealed = false;
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  Nonce nonce{};
  std::string job;
};
struct Challenge {
  bool sealed = false;
  Nonce nonce{};
};
struct Proof {
  Mac mac{};
};
struct Refuse {
  Code code = Code::kInvalidArgument;
  bool again = false;
  std::string reason;
};
struct Set {
  std::uint32_t id = 0;
  std::string key;
  std::vector<std::byte> value;
};
struct Get {
  std::uint32_t id = 0;
  std::uint32_t wait_ms = 0;
  std::string key;
};
struct Reply {
  std::uint32_t id = 0;
  Code code = Code::kOk;
  std::vector<std::byte> data;
};

// Bodies, without length and type.
std::vector<std::byte> encode(const Hello& message);
std::vector<std::byte> encode(const Challenge& message);
std::vector<std::byte> encode(const Proof& message);
std::vector<std::byte> encode(const Refuse& message);
std::vector<std::byte> encode(const Set& message);
std::vector<std::byte> encode(const Get& message);
std::vector<std::byte> encode(const Reply& message);

// kCorruptPayload when the body is too short, too long, or holds a field out of its range.
Result<Hello> parse_hello(ConstByteSpan body);
Result<Challenge> parse_challenge(ConstByteSpan body);
Result<Proof> parse_proof(ConstByteSpan body);
Result<Refuse> parse_refuse(ConstByteSpan body);
Result<Set> parse_set(ConstByteSpan body);
Result<Get> parse_get(ConstByteSpan body);
Result<Reply> parse_reply(ConstByteSpan body);

}  // namespace gradwire::rendezvous
