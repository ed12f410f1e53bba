#include "comm/rendezvous/channel.h"
#include "comm/rendezvous/socket.h"

#include <array>

#include "base/text.h"
#include "comm/rendezvous/server_session.h"

namespace gradwire::rendezvous {
namespace {

Status flush(int fd, Channel& channel, Deadline deadline) {
  while (!channel.outgoing().empty()) {
    const Moved moved = write_some(fd, channel.outgoing());
    if (moved.kind == Moved::Kind::kClosed) return {Code::kPeerLost, "the connection was closed"};
    channel.consume(moved.bytes);
    if (moved.kind == Moved::Kind::kWait) GW_TRY(wait_writable(fd, deadline));
  }
  return {};
}

// The next message, which must be of `wanted`; a refusal becomes the error it stands for.
Result<Frame> expect(int fd, Channel& channel, Kind wanted, Deadline deadline) {
  while (true) {
    GW_ASSIGN(auto frame, channel.next());
    if (frame && frame->kind == wanted) return *std::move(frame);
    if (frame && frame->kind == Kind::kRefuse) {
      GW_ASSIGN(const Refuse refusal, parse_refuse(frame->body));
      return Status(refusal.again ? Code::kPeerLost : refusal.code, "refused: " + refusal.reason);
    }
    if (frame)
      return Status(Code::kCorruptPayload,
                    format("message %d (expected %d)", static_cast<int>(frame->kind),
                           static_cast<int>(wanted)));
    std::array<std::byte, 4096> chunk{};
    const Moved moved = read_some(fd, chunk);
    if (moved.kind == Moved::Kind::kClosed)
      return Status(Code::kPeerLost, "the connection was closed during the handshake");
    if (moved.kind == Moved::Kind::kWait) GW_TRY(wait_readable(fd, deadline));
    channel.receive(ConstByteSpan(chunk).first(moved.bytes));
  }
}

Result<Channel> talk(int fd, const TcpStoreOptions& options, Deadline deadline) {
  const bool sealed = !options.secret.empty();
  const Hello hello{kVersion,
                    sealed,
                    static_cast<std::uint32_t>(options.rank),
                    static_cast<std::uint32_t>(options.size),
                    random_nonce(),
                    options.job};
  Channel channel;
  channel.send(Kind::kHello, encode(hello));
  GW_TRY(flush(fd, channel, deadline));

  GW_ASSIGN(const Frame answer, expect(fd, channel, Kind::kChallenge, deadline));
  GW_ASSIGN(const Challenge challenge, parse_challenge(answer.body));
  if (challenge.sealed != sealed)
    return Status(Code::kCorruptPayload, "the server refuses to use the secret");
  SessionKeys keys;
  if (sealed) keys = derive_keys(options.secret, hello, challenge);
  channel.send(Kind::kProof, encode(Proof{keys.client_proof}));
  GW_TRY(flush(fd, channel, deadline));

  GW_ASSIGN(const Frame welcome, expect(fd, channel, Kind::kWelcome, deadline));
  GW_ASSIGN(const Proof proof, parse_proof(welcome.body));
  if (!equal(proof.mac, keys.server_proof))
    return Status(Code::kCorruptPayload, "the server does not know the secret");
  if (sealed) channel.seal(keys.to_server, keys.to_client);
  channel.allow_large();
  return channel;
}

}  // namespace

Result<Channel> shake_hands(int fd, const TcpStoreOptions& options, Deadline deadline) {
  Result<Channel> channel = talk(fd, options, deadline);
  if (!channel.has_value() && channel.error().code() == Code::kCorruptPayload)
    return Status(Code::kInvalidArgument,
                  format("the server there is no gradwire rendezvous of this job: %s",
                         std::string(channel.error().message()).c_str()));
  return channel;
}

}  // namespace gradwire::rendezvous
