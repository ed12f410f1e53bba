// Frames of one direction between two ranks: in pieces, without a receive, withdrawn.
#include <cstring>
#include <memory>

#include "tests/comm/tcp_stream.h"
#include "tests/support/fails.h"

namespace gradwire::tcp::tcp_stream_test {
namespace {

TEST_F(TcpStream, AFrameIsTagLengthAndBytes) {
  Bytes data = pattern(3, 1);
  send(0x0102030405, data);
  EXPECT_EQ(out_.write(1 << 20, done_).bytes, 19u);
  Bytes wire(64);
  ASSERT_EQ(recv(in_fd_, wire.data(), wire.size(), 0), 19);
  const unsigned char expected[16] = {5, 4, 3, 2, 1, 1, 0, 7, 3, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(std::memcmp(wire.data(), expected, 16), 0);
  EXPECT_EQ(std::memcmp(wire.data() + 16, data.data(), 3), 0);
}

TEST_F(TcpStream, WrittenAndReadInAnyPieces) {
  for (const std::size_t step : {1, 7, 16, 17, 4099, 1 << 20}) {
    const std::size_t size = step < 100 ? 999 : 300'000;
    Bytes one = pattern(size, 1), none, two = pattern(5, 2);
    Bytes a(size), b(8, std::byte{0xaa}), c(5);
    Op& first = receive(1, a);
    Op& second = receive(2, b);
    Op& third = receive(3, c);
    send(1, one);
    send(2, none);
    send(3, two);
    move(step);
    ASSERT_TRUE(is_done(first) && is_done(second) && is_done(third)) << step;
    EXPECT_TRUE(a == one && c == two) << step;
    EXPECT_EQ(second.arrived, 0u);
    EXPECT_EQ(b, Bytes(8, std::byte{0xaa}));
  }
}

TEST_F(TcpStream, OnlyALargeMessageThatHasNotBegunIsHeld) {
  Bytes small = pattern(Turns::kLarge, 1), large = pattern(Turns::kLarge + 1, 2), last(1);
  Bytes a(small.size()), b(large.size()), c(1);
  Op& first = receive(1, a);
  Op& second = receive(2, b);
  Op& third = receive(3, c);
  send(1, small);
  Op& held = op(Transfer::Kind::kSend, 2, large);
  held.batch->number = 7;
  out_.push(held);
  send(3, last);
  EXPECT_EQ(out_.next_large(), 7u);
  const auto write = [&](bool hold, std::size_t most) {
    return out_.write(most, done_, hold).bytes;
  };
  EXPECT_EQ(write(true, 1 << 20), small.size() + 16);
  EXPECT_TRUE(out_.held());
  EXPECT_FALSE(out_.runnable());
  EXPECT_EQ(out_.last_large(), 0u);
  EXPECT_EQ(write(true, 1 << 20), 0u);
  EXPECT_EQ(write(false, 1000), 1000u);  // now it is begun
  EXPECT_FALSE(out_.held());
  EXPECT_EQ(out_.last_large(), 7u);
  EXPECT_EQ(out_.next_large(), 0u);
  EXPECT_EQ(write(true, 1000), 1000u);
  move();
  EXPECT_TRUE(is_done(first) && is_done(second) && is_done(third));
  EXPECT_TRUE(a == small && b == large);
}

TEST_F(TcpStream, AMessageWithoutAReceiveLetsTheNextOnePass) {
  Bytes early = pattern(200'000, 1), wanted = pattern(100, 2);
  Bytes in(100), late(200'000);
  Op& next = receive(2, in);
  send(1, early);
  send(2, wanted);
  move();  // its receive may come any moment
  EXPECT_FALSE(is_done(next));
  move(1 << 20, 1);
  EXPECT_TRUE(is_done(next) && in == wanted);
  EXPECT_TRUE(is_done(receive(1, late)));
  EXPECT_TRUE(late == early);
}

TEST_F(TcpStream, WithoutAnyReceiveOnlySoMuchIsTakenIn) {
  Bytes large = pattern(Inbound::kRoom / 2, 1);
  std::vector<Op*> sends;
  for (std::uint64_t i = 0; i < 3; ++i) sends.push_back(&send(i, large));
  move();
  move(1 << 20, 1);
  EXPECT_TRUE(is_done(*sends[0]) && is_done(*sends[1]));
  EXPECT_FALSE(is_done(*sends[2]));
  EXPECT_FALSE(in_.runnable());
  // Somebody who waits for something behind it lets it in.
  Bytes last = pattern(10, 9), in(10);
  send(9, last);
  Op& waiting = receive(9, in);
  move();
  move(1 << 20, 1);
  EXPECT_TRUE(is_done(waiting) && in == last);
  for (std::uint64_t i = 0; i < 3; ++i) {
    Bytes room(large.size());
    EXPECT_TRUE(is_done(receive(i, room)));
    EXPECT_TRUE(room == large) << i;
  }
}

TEST_F(TcpStream, AReceiveMayComeInTheMiddleOfItsMessage) {
  Bytes data = pattern(3 << 20, 1), in(3 << 20);
  send(1, data);
  // A socket's buffer full, of which a part is read.
  (void)out_.write(1 << 20, done_);
  in_.notice(false);
  (void)in_.read(4096, done_, Deadline());
  (void)in_.read(4096, done_, Deadline() + std::chrono::seconds(1));
  Op& wanted = receive(1, in);
  EXPECT_FALSE(is_done(wanted));
  move();
  EXPECT_TRUE(is_done(wanted) && in == data);
  EXPECT_EQ(wanted.arrived, data.size());
}

TEST_F(TcpStream, AWithdrawnReceiveGivesItsMessageToTheNext) {
  Bytes data = pattern(3 << 20, 1), wrong(3 << 20), right(3 << 20);
  Op& first = receive(1, wrong);
  send(1, data);
  (void)out_.write(1 << 20, done_);
  in_.notice(false);
  (void)in_.read(100'000, done_, Deadline());
  EXPECT_GT(first.arrived, 0u);
  in_.withdraw(first);
  wrong.assign(wrong.size(), std::byte{0});
  Op& second = receive(1, right);
  move();
  EXPECT_TRUE(is_done(second) && right == data);
  EXPECT_FALSE(is_done(first));
  EXPECT_EQ(wrong, Bytes(wrong.size()));  // untouched since
}

TEST_F(TcpStream, AWithdrawnSendThatHasBegunIsFinished) {
  Bytes data = pattern(3 << 20, 1), next = pattern(10, 2);
  Bytes in(data.size()), after(10);
  Op& sent = send(1, data);
  Op& never = send(2, next);
  (void)out_.write(100'000, done_);
  out_.withdraw(sent);
  out_.withdraw(never);
  const Bytes expected = data;
  data.assign(data.size(), std::byte{0});  // free again
  send(3, next);
  Op& first = receive(1, in);
  Op& third = receive(3, after);
  move();
  move();
  EXPECT_TRUE(is_done(first) && in == expected);
  EXPECT_TRUE(is_done(third) && after == next);
  EXPECT_FALSE(is_done(sent) || is_done(never));
}

TEST_F(TcpStream, TooLongAMessageIsRefusedAndPassedOver) {
  for (const bool early : {false, true}) {
    Bytes data = pattern(100'000, 1), small(99'999), next = pattern(4, 2), in(4);
    send(1, data);
    if (early) {
      move();
      move(1 << 20, 1);
    }
    Op& refused = receive(1, small);
    Op& good = receive(2, in);
    send(2, next);
    move();
    EXPECT_TRUE(is_done(refused) && is_done(good)) << early;
    EXPECT_THAT(refused.batch->status, fails(Code::kRankMismatch, "100000 bytes", "rank 1"));
    EXPECT_TRUE(in == next);
  }
}

TEST_F(TcpStream, AnEndBetweenMessagesIsAnEndAndWithinOneIsNot) {
  Bytes data = pattern(50'000, 1), in(50'000);
  Op& whole = receive(1, in);
  send(1, data);
  move();
  out_.shut();
  ended_ = true;
  EXPECT_EQ(move().kind, Inbound::Outcome::Kind::kOver);
  EXPECT_TRUE(is_done(whole));
}

TEST_F(TcpStream, AnEndWithinAMessageIsAFault) {
  Bytes data = pattern(50'000, 1), in(50'000);
  receive(1, in);
  send(1, data);
  (void)out_.write(10'000, done_);
  out_.close();
  ended_ = true;
  const auto outcome = move();
  EXPECT_EQ(outcome.kind, Inbound::Outcome::Kind::kBroken);
  EXPECT_EQ(outcome.reason, "connection closed within a message");
}

// Of a generation that this side has left: a peer may have sent it before it left it too.
TEST_F(TcpStream, MessagesOfAnEarlierGenerationGoNowhere) {
  constexpr std::uint64_t kNext = kPrefix + (std::uint64_t{1} << 56);
  Bytes stale = pattern(100'000, 1), fresh = pattern(100'000, 2), in(100'000);
  send(1, stale);
  (void)move(10'000);  // nobody waits for it: some of it may be kept
  in_.rebuild(kNext);
  const Op& wanted = receive(1, in);
  out_.rebuild(kNext);
  send(1, fresh);
  move();
  EXPECT_TRUE(is_done(wanted));
  EXPECT_EQ(in, fresh);
}

// Of one that only the peer has come to: it waits.
TEST_F(TcpStream, MessagesOfALaterGenerationWaitForIt) {
  constexpr std::uint64_t kNext = kPrefix + (std::uint64_t{1} << 56);
  Bytes early = pattern(3'000, 1), in(3'000), again(3'000);
  const Op& before = receive(1, in);
  out_.rebuild(kNext);
  send(1, early);
  move();
  EXPECT_FALSE(is_done(before));
  EXPECT_FALSE(in_.runnable());
  in_.withdraw(const_cast<Op&>(before));
  in_.rebuild(kNext);
  const Op& after = receive(1, again);
  move();
  EXPECT_TRUE(is_done(after));
  EXPECT_EQ(again, early);
}

// Epochs have 7 bits: the one after the last is the first again.
TEST_F(TcpStream, TheFirstEpochIsLaterThanTheLast) {
  constexpr std::uint64_t kRank = std::uint64_t{1} << 40;
  constexpr std::uint64_t kLast = std::uint64_t{0x7f} << 56 | kRank;
  Bytes stale = pattern(3'000, 1), early = pattern(3'000, 2), in(3'000);
  out_.rebuild(kLast);
  in_.rebuild(kLast);
  send(1, stale);
  out_.rebuild(kRank);
  send(1, early);
  move();
  EXPECT_FALSE(in_.runnable());
  in_.rebuild(kRank);
  const Op& after = receive(1, in);
  move();
  EXPECT_TRUE(is_done(after));
  EXPECT_EQ(in, early);
}

// The connection itself is of this job (greeting.h), so the top byte only tells generations apart.
TEST_F(TcpStream, FramesOfAnotherRankAreCorrupt) {
  for (const Header& header :
       {Header{kPrefix ^ std::uint64_t{1} << 41, 4}, Header{kPrefix, ~std::uint64_t{0}}}) {
    int ends[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    const rendezvous::Fd writer(ends[0]);
    Inbound in;
    in.open(std::make_shared<rendezvous::Fd>(ends[1]));
    in.rebuild(kPrefix);
    ASSERT_EQ(write(writer.get(), &header, sizeof header), 16);
    EXPECT_EQ(in.read(1 << 20, done_, Deadline()).kind, Inbound::Outcome::Kind::kCorrupt);
  }
}

}  // namespace
}  // namespace gradwire::tcp::tcp_stream_test
