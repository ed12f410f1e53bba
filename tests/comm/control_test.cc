#include <gtest/gtest.h>

#include "base/philox.h"
#include "comm/control.h"

namespace gradwire::comm::control_test {
namespace {

TEST(Control, ComesBackAsItWas) {
  Control verdict{.kind = Control::Kind::kVerdict, .epoch = 0x55, .flag = true};
  verdict.from = 3;
  verdict.about = 1;
  verdict.reporter = 2;
  verdict.cause = LossCause::kSilence;
  verdict.operation = 41;
  verdict.id = 0x0123456789abcdef;
  verdict.text = "no heartbeat for 5.0 s";
  const std::vector<std::byte> bytes = encode(verdict);
  EXPECT_EQ(bytes.size(), 24u + 22u);
  EXPECT_EQ(bytes[1], std::byte{3});      // kind
  EXPECT_EQ(bytes[11], std::byte{2});     // cause
  EXPECT_EQ(bytes[12], std::byte{42});    // the operation's number + 1, least byte first
  EXPECT_EQ(bytes[16], std::byte{0xef});  // id, likewise
  const auto back = decode(bytes, 4);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->kind, Control::Kind::kVerdict);
  EXPECT_EQ(back->epoch, 0x55);
  EXPECT_TRUE(back->flag);
  EXPECT_EQ(back->from, 3);
  EXPECT_EQ(back->about, 1);
  EXPECT_EQ(back->reporter, 2);
  EXPECT_EQ(back->cause, LossCause::kSilence);
  EXPECT_EQ(back->operation, std::optional<std::uint64_t>(41));
  EXPECT_EQ(back->id, 0x0123456789abcdefu);
  EXPECT_EQ(back->text, "no heartbeat for 5.0 s");
}

TEST(Control, LongTextIsCut) {
  Control verdict{.kind = Control::Kind::kVerdict};
  verdict.text = std::string(5000, 'x');
  const auto back = decode(encode(verdict), 1);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->text, std::string(200, 'x'));
}

TEST(Control, ACauseThatThereIsNotIsRefused) {
  std::vector<std::byte> bytes = encode({.kind = Control::Kind::kVerdict});
  bytes[11] = static_cast<std::byte>(kLastLossCause);
  EXPECT_TRUE(decode(bytes, 1).has_value());
  bytes[11] = static_cast<std::byte>(static_cast<int>(kLastLossCause) + 1);
  EXPECT_FALSE(decode(bytes, 1).has_value());
}

TEST(Control, RanksOutsideTheJobAreRefused) {
  Control beat{.kind = Control::Kind::kHeartbeat};
  beat.from = 4;
  EXPECT_TRUE(decode(encode(beat), 5).has_value());
  EXPECT_FALSE(decode(encode(beat), 4).has_value());
  beat.from = 0;
  beat.about = 9;
  EXPECT_FALSE(decode(encode(beat), 9).has_value());
}

TEST(Control, ShortLongAndRandomBytesAreRefused) {
  const std::vector<std::byte> bytes = encode({});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode(ConstByteSpan(bytes).first(size), 1).has_value()) << size;
  }
  EXPECT_FALSE(decode(std::vector<std::byte>(225), 1).has_value());
  const RandomStream random(1, RandomUse::kTest, 0, 0, 0, 0);
  for (std::uint64_t trial = 0; trial < 1000; ++trial) {
    std::vector<std::byte> noise(random.word(trial) % 230);
    for (std::size_t i = 0; i < noise.size(); ++i) {
      noise[i] = static_cast<std::byte>(random.word(1000 + trial * 230 + i));
    }
    const auto message = decode(noise, 16);  // no crash; and nothing outside the job
    EXPECT_LT(message ? message->about : 0, 16);
  }
}

}  // namespace
}  // namespace gradwire::comm::control_test
