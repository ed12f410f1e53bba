// What a stranger can send to the rendezvous: every message parser, the framing, and whole
// conversations with the server's side of a connection, open and sealed.
#include <algorithm>
#include <chrono>
#include <string>

#include "base/check.h"
#include "comm/rendezvous/server_session.h"
#include "tests/fuzz/fuzz_target.h"

namespace gradwire::fuzz {
namespace {

using namespace rendezvous;

// A message that was understood is written again as the same bytes.
template <typename Message>
void check_round_trip(const Result<Message>& message, ConstByteSpan body) {
  if (message.has_value()) GW_CHECK(std::ranges::equal(encode(message.value()), body));
}

void parse_all(ConstByteSpan body) {
  check_round_trip(parse_hello(body), body);
  check_round_trip(parse_challenge(body), body);
  check_round_trip(parse_proof(body), body);
  check_round_trip(parse_refuse(body), body);
  check_round_trip(parse_set(body), body);
  check_round_trip(parse_get(body), body);
  check_round_trip(parse_reply(body), body);
}

// The bytes come in pieces; the first byte says how large these are.
void converse(ConstByteSpan bytes, const std::string& secret) {
  JobState job("job", 4, secret);
  ServerSession session(job);
  const std::size_t piece = bytes.empty() ? 1 : 1 + std::to_integer<std::size_t>(bytes[0]) * 4;
  const auto now = std::chrono::steady_clock::now();
  while (!bytes.empty()) {
    const ConstByteSpan some = bytes.first(std::min(piece, bytes.size()));
    bytes = bytes.subspan(some.size());
    if (!session.receive(some, now).ok() || session.over()) break;
    session.answer_waiting(now + std::chrono::milliseconds(1));
    GW_CHECK(session.channel().outgoing().size() <= 4 * kMaxPayloadBytes);
    session.channel().consume(session.channel().outgoing().size() / 2);
  }
  // Nobody comes in without the secret.
  GW_CHECK(secret.empty() || !session.joined());
}

Bytes framed(const std::vector<std::pair<Kind, std::vector<std::byte>>>& messages) {
  Channel channel;
  for (const auto& [kind, body] : messages) channel.send(kind, body);
  const ConstByteSpan out = channel.outgoing();
  Bytes bytes;
  for (const std::byte b : out) bytes.push_back(std::to_integer<std::uint8_t>(b));
  return bytes;
}

Bytes plain(const std::vector<std::byte>& body) {
  Bytes bytes;
  for (const std::byte b : body) bytes.push_back(std::to_integer<std::uint8_t>(b));
  return bytes;
}

}  // namespace

std::vector<Bytes> seeds() {
  const Hello hello{.rank = 1, .size = 4, .nonce = {}, .job = "job"};
  const Hello sealed{.sealed = true, .rank = 3, .size = 4, .nonce = {}, .job = "job"};
  const std::vector<std::byte> value(300, std::byte{7});
  const auto say = [](Kind kind, std::vector<std::byte> body) {
    return std::pair(kind, std::move(body));
  };
  const auto open = say(Kind::kHello, encode(hello));
  const auto proof = say(Kind::kProof, encode(Proof{}));
  return {
      framed({open, proof, say(Kind::kSet, encode(Set{1, "key", value})),
              say(Kind::kGet, encode(Get{2, 1000, "key"})),
              say(Kind::kGet, encode(Get{3, 0, "other"})), say(Kind::kBye, {})}),
      framed({open, proof, say(Kind::kSet, encode(Set{1, "key", {}})),
              say(Kind::kSet, encode(Set{2, "key", value}))}),
      framed({say(Kind::kHello, encode(sealed)), proof}),
      framed({say(Kind::kRefuse, encode(Refuse{Code::kTimedOut, true, "why"}))}),
      plain(encode(hello)),
      plain(encode(Challenge{})),
      plain(encode(Refuse{Code::kInvalidArgument, false, "reason"})),
      plain(encode(Set{1, std::string(256, 'k'), value})),
      plain(encode(Get{1, 2, "k"})),
      plain(encode(Reply{1, Code::kTimedOut, value})),
      {'G', 'E', 'T', ' ', '/', ' ', 'H', 'T', 'T', 'P', '/', '1', '.', '1', '\r', '\n'},
  };
}

}  // namespace gradwire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  gradwire::fuzz::parse_all(bytes);
  gradwire::fuzz::converse(bytes, "");
  gradwire::fuzz::converse(bytes, "secret");
  return 0;
}
