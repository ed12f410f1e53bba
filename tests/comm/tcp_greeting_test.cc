#include <gtest/gtest.h>

#include "base/philox.h"
#include "comm/tcp/greeting.h"

namespace gradwire::tcp::tcp_greeting_test {
namespace {

Hello hello() {
  Hello hello{.kind = LinkKind::kControl, .from = 0x102, .to = 3, .nonce = {}};
  hello.nonce[15] = std::byte{9};
  return hello;
}

TEST(TcpGreeting, AHelloHasItsLayoutAndComesBack) {
  const std::vector<std::byte> bytes = encode(hello());
  ASSERT_EQ(bytes.size(), 32u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), 8), "gw-tcp1\n");
  EXPECT_EQ(bytes[8], std::byte{2});   // control
  EXPECT_EQ(bytes[10], std::byte{2});  // from, low byte first
  EXPECT_EQ(bytes[11], std::byte{1});
  EXPECT_EQ(bytes[12], std::byte{3});
  EXPECT_EQ(bytes[31], std::byte{9});
  const auto back = decode_hello(bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->kind, LinkKind::kControl);
  EXPECT_EQ(back->from, 0x102);
  EXPECT_EQ(back->to, 3);
  EXPECT_EQ(back->nonce, hello().nonce);
}

TEST(TcpGreeting, OtherBytesAreNoHello) {
  std::vector<std::byte> bytes = encode(hello());
  EXPECT_FALSE(decode_hello(ConstByteSpan(bytes).first(31)).has_value());
  for (const std::size_t place : {0, 7, 8, 9, 14, 15}) {  // magic, kind, the zeros
    std::vector<std::byte> changed = bytes;
    changed[place] ^= std::byte{0x40};
    EXPECT_FALSE(decode_hello(changed).has_value()) << place;
  }
  const RandomStream random(1, RandomUse::kTest, 0, 0, 0, 0);
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(random.word(trial * 32 + i));
    }
    EXPECT_FALSE(decode_hello(bytes).has_value());
  }
}

// Each bit of what went over the wire counts, and so do secret, job and token.
TEST(TcpGreeting, OnlyTheKeysOwnerMakesChallengesAndProofs) {
  const rendezvous::Mac key = greeting_key("secret", "job", "token");
  EXPECT_NE(key, greeting_key("secret!", "job", "token"));
  EXPECT_NE(key, greeting_key("secret", "job!", "token"));
  EXPECT_NE(key, greeting_key("secret", "job", "token!"));
  EXPECT_NE(greeting_key("ab", "c", ""), greeting_key("a", "bc", ""));

  const std::vector<std::byte> first = encode(hello());
  const auto challenge = make_challenge(key, first, rendezvous::random_nonce());
  ASSERT_EQ(challenge.size(), kChallengeBytes);
  EXPECT_TRUE(is_challenge(key, first, challenge));
  const auto proof = make_proof(key, first, challenge);
  ASSERT_EQ(proof.size(), kProofBytes);
  EXPECT_TRUE(is_proof(key, first, challenge, proof));

  const rendezvous::Mac other = greeting_key("", "job", "token");
  EXPECT_FALSE(is_challenge(other, first, challenge));
  EXPECT_FALSE(is_proof(other, first, challenge, proof));
  // A challenge's own code is no proof: nothing that one side says can be said back to it.
  EXPECT_FALSE(is_proof(key, first, challenge, ConstByteSpan(challenge).subspan(16)));
  for (std::size_t i = 0; i < challenge.size(); ++i) {
    std::vector<std::byte> changed = challenge;
    changed[i] ^= std::byte{1};
    EXPECT_FALSE(is_challenge(key, first, changed)) << i;
    EXPECT_FALSE(is_proof(key, first, changed, proof)) << i;
  }
  EXPECT_FALSE(is_challenge(key, first, ConstByteSpan(challenge).first(47)));
  EXPECT_FALSE(is_proof(key, first, challenge, ConstByteSpan(proof).first(31)));
}

}  // namespace
}  // namespace gradwire::tcp::tcp_greeting_test
