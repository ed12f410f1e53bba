// Frames on one connection, both ways, without the connection: bytes in, messages out, and back.
// Once sealed, every frame carries an HMAC over its direction's key and a counter, so that a frame
// that is forged, changed, dropped, repeated or sent back ends the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "comm/rendezvous/messages.h"
#include "gradwire/rendezvous.h"

namespace gradwire::rendezvous {

struct Frame {
  Kind kind = Kind::kBye;
  std::vector<std::byte> body;
};

class Channel {
 public:
  // Frames after this call are sealed, those already queued or received are not affected.
  void seal(const Mac& send_key, const Mac& receive_key);
  // Frames up to kMaxPayloadBytes from now on; kMaxHandshakeBytes before.
  void allow_large() { max_payload_ = kMaxPayloadBytes; }

  void send(Kind kind, ConstByteSpan body);
  // What is to be written to the connection; consume what was.
  ConstByteSpan outgoing() const { return ConstByteSpan(out_).subspan(out_used_); }
  void consume(std::size_t bytes);

  void receive(ConstByteSpan bytes);
  // The next whole frame; nullopt until more bytes come. kCorruptPayload ends the connection: the
  // length is over the limit (checked before anything is allocated), the kind is unknown or the
  // HMAC is wrong.
  Result<std::optional<Frame>> next();

 private:
  struct Seal {
    Mac key{};
    std::uint64_t count = 0;
  };
  static Mac mac_of(Seal& seal, ConstByteSpan payload);

  std::size_t max_payload_ = kMaxHandshakeBytes;
  std::optional<Seal> send_seal_;
  std::optional<Seal> receive_seal_;
  std::vector<std::byte> out_;
  std::size_t out_used_ = 0;
  std::vector<std::byte> in_;
  std::size_t in_used_ = 0;
};

}  // namespace gradwire::rendezvous
