// Messages that are announced before they are sent (comm/flow_window.h), on one direction between
// two ranks.
#include <cstring>

#include "tests/comm/tcp_stream.h"

namespace gradwire::tcp::tcp_announced_test {
namespace {

TEST_F(TcpStream, AnAnnouncementIsTagLengthAndNumber) {
  Bytes data = pattern(300'000, 1);
  Op& sent = op(Transfer::Kind::kSend, 0x0102030405, data);
  sent.id = 0x0a0b;
  out_.announce(sent);
  EXPECT_EQ(out_.write(1 << 20, done_).bytes, 24u);
  EXPECT_FALSE(is_done(sent));
  out_.push_announced(sent);
  EXPECT_EQ(out_.write(20, done_).bytes, 20u);
  Bytes wire(64);
  ASSERT_EQ(recv(in_fd_, wire.data(), wire.size(), 0), 44);
  const unsigned char expected[40] = {
      5,    4,    3, 2,    1,    1, 0, 7,
      0xe0, 0x93, 4, 0,    0,    0, 0, 0x80,  // 300,000 and the top bit
      0x0b, 0x0a, 0, 0,    0,    0, 0, 0,     //
      0x0b, 0x0a, 0, 0xf0, 0xff, 1, 0, 7,
      0xe0, 0x93, 4, 0,    0,    0, 0, 0};
  EXPECT_EQ(std::memcmp(wire.data(), expected, 40), 0);
  EXPECT_EQ(std::memcmp(wire.data() + 40, data.data(), 4), 0);
}

TEST_F(TcpStream, AnnouncedDataComesWhenItIsWanted) {
  std::uint64_t id = 0;
  for (const std::size_t step : {1, 7, 23, 24, 25, 1 << 20}) {
    for (const bool early : {false, true}) {
      Bytes data = pattern(999, 1), behind = pattern(5, 2), in(999), after(5);
      Op& sent = op(Transfer::Kind::kSend, 1, data);
      sent.id = ++id;
      out_.announce(sent);
      send(2, behind);
      if (!early) move(step);
      Op& wanted = receive(1, in);
      Op& next = receive(2, after);
      move(step);
      EXPECT_TRUE(is_done(next) && after == behind);
      EXPECT_FALSE(is_done(sent) || is_done(wanted));
      const std::vector<Inbound::Answer> answers = in_.take_answers();
      ASSERT_EQ(answers.size(), 1u) << step;
      EXPECT_EQ(answers[0].id, id);
      EXPECT_TRUE(answers[0].wanted);
      out_.push_announced(sent);
      move(step);
      EXPECT_TRUE(is_done(sent) && is_done(wanted) && in == data) << step;
    }
  }
}

TEST_F(TcpStream, AnAnnouncedMessageMayBeTooLongOrUnwanted) {
  Bytes data = pattern(5000, 1), small(4999), in(5000), behind = pattern(5, 2), after(5);
  Op& sent = op(Transfer::Kind::kSend, 1, data);
  sent.id = 1;
  out_.announce(sent);
  move();
  const Op& refused = receive(1, small);
  EXPECT_TRUE(is_done(refused));
  EXPECT_EQ(refused.batch->status.code(), Code::kRankMismatch);
  std::vector<Inbound::Answer> answers = in_.take_answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_FALSE(answers[0].wanted);
  // One whose receive is withdrawn after it asked goes nowhere, and holds up nobody.
  sent.id = 2;
  out_.announce(sent);
  Op& given_up = receive(1, in);
  move();
  EXPECT_TRUE(in_.take_answers().at(0).wanted);
  in_.withdraw(given_up);
  out_.push_announced(sent);
  send(2, behind);
  const Op& next = receive(2, after);
  move();
  EXPECT_TRUE(is_done(next) && after == behind);
  EXPECT_EQ(in, Bytes(in.size()));
}

// Nobody would ever take it from there: the room is for messages of other tags.
TEST_F(TcpStream, AnnouncedDataThatIsWithdrawnInTheMiddleTakesNoRoom) {
  Bytes data = pattern(Inbound::kRoom, 1), in(data.size()), behind = pattern(1 << 20, 2);
  Op& sent = op(Transfer::Kind::kSend, 1, data);
  sent.id = 1;
  out_.announce(sent);
  Op& given_up = receive(1, in);
  move();
  out_.push_announced(sent);
  (void)out_.write(1 << 16, done_);
  in_.notice(false);
  (void)in_.read(1 << 10, done_, now_);
  ASSERT_GT(given_up.arrived, 0u);
  in_.withdraw(given_up);
  const Op& next = send(2, behind);
  move(1 << 20, 1);
  EXPECT_TRUE(is_done(sent));
  EXPECT_TRUE(is_done(next));
  EXPECT_FALSE(is_done(given_up));
}

TEST_F(TcpStream, AnnouncedDataMayBeWithdrawnByItsSender) {
  Bytes data = pattern(5000, 1), in(5000);
  Op& sent = op(Transfer::Kind::kSend, 1, data);
  sent.id = 7;
  out_.announce(sent);
  Op& wanted = receive(1, in);
  EXPECT_EQ(in_.asking(7), nullptr);
  move();
  EXPECT_EQ(in_.asking(7), &wanted);
  EXPECT_EQ(in_.asking(8), nullptr);
  out_.push_announced(sent);
  EXPECT_TRUE(out_.withdraw(sent));
  out_.push_announced(sent);
  (void)out_.write(100, done_);
  EXPECT_FALSE(out_.withdraw(sent));
}

TEST_F(TcpStream, AMessageThatMeetsTwoReceivesIsCountedOnce) {
  Bytes data = pattern(50'000, 1), in(50'000);
  constexpr std::uint64_t kCharge = 50'000 + comm::FlowWindow::kPerMessage;
  for (const bool late : {false, true}) {
    send(1, data);
    if (late) {  // the message has begun to wait
      (void)out_.write(10'000, done_);
      in_.notice(false);
      (void)in_.read(1 << 10, done_, now_);
      now_ += std::chrono::seconds(1);
      (void)in_.read(1 << 10, done_, now_);
    }
    Op& first = receive(1, in);
    (void)out_.write(10'000, done_);
    in_.notice(false);
    (void)in_.read(1 << 10, done_, now_);
    ASSERT_GT(first.arrived, 0u);
    in_.withdraw(first);
    const Op& second = receive(1, in);
    move();
    EXPECT_TRUE(is_done(second) && in == data);
    EXPECT_EQ(in_.take_met(), kCharge) << late;
  }
}

TEST_F(TcpStream, WhatHasMetReceivesIsCounted) {
  Bytes data = pattern(1000, 1), in(1000), late(1000);
  receive(1, in);
  send(1, data);
  send(2, data);
  move(1 << 20, 1);
  EXPECT_EQ(in_.take_met(), 1000 + comm::FlowWindow::kPerMessage);
  EXPECT_EQ(in_.take_met(), 0u);
  receive(2, late);
  EXPECT_EQ(in_.take_met(), 1000 + comm::FlowWindow::kPerMessage);
}

}  // namespace
}  // namespace gradwire::tcp::tcp_announced_test
