// The server's side of one connection, without a connection: who is let in, and what a sealed
// channel refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "comm/rendezvous/server_session.h"
#include "tests/support/names.h"

namespace gradwire::rendezvous::rendezvous_session_test {
namespace {

ConstByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
std::vector<std::byte> copy(ConstByteSpan bytes) { return {bytes.begin(), bytes.end()}; }
Deadline now() { return std::chrono::steady_clock::now(); }

// A client that plays by the rules until told otherwise.
struct Client {
  Client(JobState& state, std::string secret_, std::uint32_t rank = 1)
      : session(state), secret(std::move(secret_)) {
    hello.rank = rank;
    hello.size = static_cast<std::uint32_t>(state.size);
    hello.job = state.job;
    hello.sealed = !secret.empty();
    hello.nonce = random_nonce();
  }
  // What the client has queued goes to the server, the answers come back.
  Status exchange() {
    const std::vector<std::byte> sent = copy(channel.outgoing());
    channel.consume(sent.size());
    Status status = session.receive(sent, now());
    const std::vector<std::byte> answer = copy(session.channel().outgoing());
    session.channel().consume(answer.size());
    channel.receive(answer);
    return status;
  }
  Frame next() {
    const auto frame = channel.next();
    EXPECT_TRUE(frame.has_value());
    if (!frame.has_value() || !frame.value()) return {Kind::kBye, {}};
    return *frame.value();
  }
  // "" when let in, else the reason.
  std::string join() {
    channel.send(Kind::kHello, encode(hello));
    EXPECT_TRUE(exchange().ok());
    Frame answer = next();
    if (answer.kind == Kind::kRefuse) return parse_refuse(answer.body).value().reason;
    const SessionKeys keys = derive_keys(secret, hello, parse_challenge(answer.body).value());
    channel.send(Kind::kProof, encode(Proof{secret.empty() ? Mac{} : keys.client_proof}));
    EXPECT_TRUE(exchange().ok());
    answer = next();
    if (answer.kind == Kind::kRefuse) return parse_refuse(answer.body).value().reason;
    EXPECT_EQ(parse_proof(answer.body).value().mac, secret.empty() ? Mac{} : keys.server_proof);
    if (!secret.empty()) channel.seal(keys.to_server, keys.to_client);
    channel.allow_large();
    return "";
  }
  Reply reply() { return parse_reply(next().body).value(); }

  ServerSession session;
  std::string secret;
  Hello hello;
  Channel channel;
};

TEST(ServerSession, LetsInWhoKnowsTheSecretAndServes) {
  JobState job("j", 2, "secret");
  Client client(job, "secret");
  ASSERT_EQ(client.join(), "");
  EXPECT_TRUE(client.session.joined());
  client.channel.send(Kind::kSet, encode(Set{1, "k", copy(bytes_of("v"))}));
  client.channel.send(Kind::kGet, encode(Get{2, 1000, "k"}));
  ASSERT_TRUE(client.exchange().ok());
  EXPECT_EQ(client.reply().code, Code::kOk);
  EXPECT_EQ(client.reply().data, copy(bytes_of("v")));
  client.channel.send(Kind::kBye, {});
  ASSERT_TRUE(client.exchange().ok());
  EXPECT_TRUE(client.session.over());
  EXPECT_EQ(job.roster.count(Roster::Presence::kDone), 1);
}

TEST(ServerSession, SaysWhyItRefuses) {
  JobState open("mine", 4, "");
  JobState sealed("mine", 4, "secret");
  const auto refusal = [](JobState& job, const std::string& secret, auto change) {
    Client client(job, secret);
    change(client.hello);
    const std::string reason = client.join();
    EXPECT_TRUE(client.session.over());
    return reason;
  };
  const auto as_is = [](Hello&) {};
  // A wrong one, none where there is one, and one where there is none.
  EXPECT_THAT(refusal(sealed, "sesame", as_is), tells("wrong", "secret"));
  EXPECT_THAT(refusal(sealed, "", as_is), tells("no", "secret"));
  EXPECT_THAT(refusal(open, "secret", as_is), tells("secret", "none"));
  EXPECT_THAT(refusal(open, "", [](Hello& h) { h.job = "other"; }), tells("'other'", "'mine'"));
  const std::string hidden = refusal(sealed, "secret", [](Hello& h) { h.job = "other"; });
  EXPECT_THAT(hidden, tells("'other'"));
  EXPECT_EQ(hidden.find("mine"), std::string::npos) << hidden;
  EXPECT_THAT(refusal(open, "", [](Hello& h) { h.size = 5; }),
              tells("5 ranks", "expected 4", "rank 0"));
  EXPECT_THAT(refusal(open, "", [](Hello& h) { h.rank = 4; }), tells("rank 4", "1..3"));
  EXPECT_THAT(refusal(open, "", [](Hello& h) { h.rank = 0; }), tells("rank 0", "1..3"));
  EXPECT_THAT(refusal(open, "", [](Hello& h) { h.version = 9; }),
              tells("protocol 9", "expected 1"));
}

TEST(ServerSession, ARankIsThereOnce) {
  JobState job("j", 3, "");
  Client first(job, "");
  ASSERT_EQ(first.join(), "");
  Client second(job, "");
  EXPECT_THAT(second.join(), tells("rank 1", "joined"));
  Client other(job, "", 2);
  EXPECT_EQ(other.join(), "");
}

// The client's patience for one try ends while the server, on a busy machine, has yet to say
// welcome: its next try is no second process.
TEST(ServerSession, ARankWhoseConnectionBrokeBeforeItAskedMayComeAgain) {
  JobState job("j", 2, "");
  {
    Client first(job, "");
    ASSERT_EQ(first.join(), "");
  }
  EXPECT_THAT(job.roster.missing(), tells("disconnected", "1"));
  {
    Client second(job, "");
    ASSERT_EQ(second.join(), "");
    second.channel.send(Kind::kGet, encode(Get{1, 0, "k"}));
    ASSERT_TRUE(second.exchange().ok());
  }
  Client third(job, "");
  EXPECT_THAT(third.join(), tells("rank 1", "left"));
}

// A rank's proof belongs to its connection: the same bytes open no second one.
TEST(ServerSession, AProofCannotBePlayedAgain) {
  JobState job("j", 3, "secret");
  Client client(job, "secret");
  client.channel.send(Kind::kHello, encode(client.hello));
  ASSERT_TRUE(client.exchange().ok());
  const SessionKeys keys =
      derive_keys("secret", client.hello, parse_challenge(client.next().body).value());

  Client thief(job, "");
  thief.hello = client.hello;
  thief.channel.send(Kind::kHello, encode(thief.hello));
  ASSERT_TRUE(thief.exchange().ok());
  (void)thief.next();
  thief.channel.send(Kind::kProof, encode(Proof{keys.client_proof}));
  ASSERT_TRUE(thief.exchange().ok());
  EXPECT_EQ(thief.next().kind, Kind::kRefuse);
  EXPECT_FALSE(thief.session.joined());
}

TEST(ServerSession, AMessageCannotBePlayedAgain) {
  JobState job("j", 2, "secret");
  Client client(job, "secret");
  ASSERT_EQ(client.join(), "");
  client.channel.send(Kind::kGet, encode(Get{1, 0, "k"}));
  const std::vector<std::byte> recorded = copy(client.channel.outgoing());
  ASSERT_TRUE(client.exchange().ok());
  EXPECT_EQ(client.session.receive(recorded, now()).code(), Code::kCorruptPayload);
}

TEST(ServerSession, AMessageCannotBeSentBackToItsSender) {
  JobState job("j", 2, "secret");
  Client client(job, "secret");
  ASSERT_EQ(client.join(), "");
  client.channel.send(Kind::kGet, encode(Get{1, 0, "k"}));
  const std::vector<std::byte> sent = copy(client.channel.outgoing());
  client.channel.receive(sent);
  EXPECT_EQ(client.channel.next().error().code(), Code::kCorruptPayload);
}

TEST(ServerSession, NoFlippedBitOfASealedMessageIsTaken) {
  const std::string value = "value";
  std::size_t bits = 1;  // learned from the first message
  for (std::size_t bit = 0; bit < bits; ++bit) {
    JobState job("j", 2, "secret");
    Client client(job, "secret");
    ASSERT_EQ(client.join(), "");
    client.channel.send(Kind::kSet, encode(Set{1, "key", copy(bytes_of(value))}));
    std::vector<std::byte> sent = copy(client.channel.outgoing());
    bits = sent.size() * 8;
    sent[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    (void)client.session.receive(sent, now());  // an error, or a wait for a longer message
    EXPECT_FALSE(job.table.find("key")) << "bit " << bit;
  }
  EXPECT_EQ(bits, 8U * (4 + 1 + 4 + 2 + 3 + 5 + 32));  // the grammar of messages.h
}

TEST(ServerSession, MessagesAtTheWrongTimeEndTheConnection) {
  const std::vector<std::pair<Kind, std::vector<std::byte>>> early{
      {Kind::kSet, encode(Set{1, "k", {}})},
      {Kind::kGet, encode(Get{1, 0, "k"})},
      {Kind::kBye, {}},
      {Kind::kProof, encode(Proof{})},
      {Kind::kReply, encode(Reply{})},
      {Kind::kWelcome, encode(Proof{})}};
  for (const auto& [kind, body] : early) {
    JobState job("j", 2, "");
    Client client(job, "");
    client.channel.send(kind, body);
    EXPECT_EQ(client.exchange().code(), Code::kCorruptPayload) << static_cast<int>(kind);
    EXPECT_FALSE(job.table.find("k"));
  }
}

TEST(ServerSession, LengthsAreCheckedBeforeAnythingIsHeld) {
  JobState job("j", 2, "");
  {
    Client stranger(job, "");  // 1 KiB is all that a stranger may send at once
    const auto length = std::vector<std::byte>{std::byte{1}, std::byte{4}, {}, {}};
    EXPECT_EQ(stranger.session.receive(length, now()).code(), Code::kCorruptPayload);
  }
  Client client(job, "");
  ASSERT_EQ(client.join(), "");
  const auto length = std::vector<std::byte>(4, std::byte{0xff});
  EXPECT_EQ(client.session.receive(length, now()).code(), Code::kCorruptPayload);
}

TEST(ServerSession, AClientThatAsksAndDoesNotReadFillsNoMemory) {
  JobState job("j", 2, "");
  ASSERT_TRUE(job.table.set("k", std::vector<std::byte>(kMaxValueBytes), Deadline()).ok());
  Client client(job, "");
  ASSERT_EQ(client.join(), "");
  for (std::uint32_t id = 1; id <= 100; ++id)
    client.channel.send(Kind::kGet, encode(Get{id, 1000, "k"}));
  ASSERT_TRUE(client.session.receive(client.channel.outgoing(), now()).ok());
  EXPECT_TRUE(client.session.backlogged());
  EXPECT_LE(client.session.channel().outgoing().size(), 4 * kMaxPayloadBytes);
  // Once it reads it gets all of them.
  std::uint32_t answers = 0;
  for (int turn = 0; turn < 200 && answers < 100; ++turn) {
    const std::vector<std::byte> some = copy(client.session.channel().outgoing());
    client.session.channel().consume(some.size());
    client.channel.receive(some);
    for (auto frame = client.channel.next(); frame.value(); frame = client.channel.next())
      ++answers;
    ASSERT_TRUE(client.session.receive({}, now()).ok());
    client.session.answer_waiting(now());
  }
  EXPECT_EQ(answers, 100U);
}

TEST(Roster, SaysWhoIsMissing) {
  Roster roster(5);
  EXPECT_THAT(roster.missing(), tells("join", "1, 2, 3, 4"));
  for (const std::uint32_t rank : {1U, 2U, 4U}) EXPECT_FALSE(roster.join(rank));
  roster.leave(1, Roster::Presence::kDone);
  roster.leave(4, Roster::Presence::kLost);
  EXPECT_THAT(roster.missing(),
              ::testing::AllOf(tells("join", "disconnected"), ::testing::ContainsRegex("3.*4")));
  EXPECT_TRUE(roster.join(1)->again);  // may be back for the next job
  EXPECT_FALSE(roster.join(4)->again);
}

}  // namespace
}  // namespace gradwire::rendezvous::rendezvous_session_test
