// Connections between ranks as threads, with strangers in between.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "comm/tcp/meeting.h"
#include "tests/support/fails.h"

namespace gradwire::tcp::tcp_meeting_test {
namespace {

using rendezvous::Fd;

struct Place {
  std::vector<PeerAddress> addresses;
  std::vector<std::vector<Fd>> listeners;
};

Place make_place(int ranks) {
  Place place;
  for (int rank = 0; rank < ranks; ++rank) {
    auto fd = rendezvous::listen_on("127.0.0.1", 0);
    EXPECT_TRUE(fd.has_value());
    const int port = rendezvous::local_port(fd.value().get()).value();
    place.addresses.push_back({"127.0.0.1", port, greeting_key("s", "job", std::to_string(rank))});
    place.listeners.emplace_back();
    place.listeners.back().push_back(std::move(fd).value());
  }
  return place;
}

std::vector<Result<std::vector<Links>>> meet(Place& place, double seconds) {
  std::vector<Result<std::vector<Links>>> outcomes;
  for (std::size_t r = 0; r < place.addresses.size(); ++r) {
    outcomes.emplace_back(Status(Code::kInternal, "did not run"));
  }
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < place.addresses.size(); ++r) {
    threads.emplace_back([&, r] {
      Meeting meeting(static_cast<int>(r), place.addresses, std::move(place.listeners[r]));
      outcomes[r] = meeting.run(deadline_in(seconds), seconds);
    });
  }
  threads.clear();
  return outcomes;
}

// A byte that goes into one end comes out at the other.
bool joined(const Fd& a, const Fd& b) {
  const std::byte sent{0x5a};
  std::byte seen{};
  if (rendezvous::write_some(a.get(), ConstByteSpan(&sent, 1)).bytes != 1) return false;
  if (!rendezvous::wait_readable(b.get(), deadline_in(5)).ok()) return false;
  return rendezvous::read_some(b.get(), ByteSpan(&seen, 1)).bytes == 1 && seen == sent;
}

TEST(TcpMeeting, EverybodyIsJoinedWithEverybody) {
  constexpr std::size_t kRanks = 5;
  Place place = make_place(kRanks);
  auto links = meet(place, 20);
  for (std::size_t r = 0; r < kRanks; ++r) {
    ASSERT_TRUE(links[r].has_value()) << links[r].error().message();
    EXPECT_FALSE(links[r].value()[r].bulk.valid());
  }
  for (std::size_t a = 0; a < kRanks; ++a) {
    for (std::size_t b = 0; b < kRanks; ++b) {
      if (a == b) continue;
      EXPECT_TRUE(joined(links[a].value()[b].bulk, links[b].value()[a].bulk)) << a << " " << b;
      EXPECT_TRUE(joined(links[a].value()[b].control, links[b].value()[a].control)) << a << b;
    }
  }
}

// Strangers that say nothing, that say something else, and more of them than are let in at once.
TEST(TcpMeeting, StrangersDoNotStopIt) {
  Place place = make_place(2);
  std::vector<Fd> strangers;
  const std::string garbage(500, 'x');
  for (int i = 0; i < 400; ++i) {
    auto fd = rendezvous::connect_to({"127.0.0.1", place.addresses[0].port}, deadline_in(5));
    if (!fd.has_value()) continue;  // the queue of connections may be full
    if (i % 2 == 0) {
      (void)rendezvous::write_some(fd.value().get(),
                                   std::as_bytes(std::span(garbage.data(), garbage.size())));
    }
    strangers.push_back(std::move(fd).value());
  }
  EXPECT_GT(strangers.size(), 100u);
  const auto links = meet(place, 20);
  for (const auto& each : links) EXPECT_TRUE(each.has_value()) << each.error().message();
}

TEST(TcpMeeting, AWrongKeyIsNeverLetIn) {
  Place place = make_place(2);
  Place theirs;
  theirs.addresses = place.addresses;
  theirs.addresses[1].key = greeting_key("other", "job", "1");  // rank 0 calls rank 1
  std::vector<Result<std::vector<Links>>> outcomes;
  outcomes.emplace_back(Status(Code::kInternal, "did not run"));
  outcomes.emplace_back(Status(Code::kInternal, "did not run"));
  {
    std::jthread other([&] {
      Meeting meeting(1, theirs.addresses, std::move(place.listeners[1]));
      outcomes[1] = meeting.run(deadline_in(1), 1);
    });
    Meeting meeting(0, place.addresses, std::move(place.listeners[0]));
    outcomes[0] = meeting.run(deadline_in(1), 1);
  }
  for (const auto& outcome : outcomes) {
    ASSERT_FALSE(outcome.has_value());
  }
  EXPECT_THAT(outcomes[0].error(), fails(Code::kTimedOut, "rank 1", "127.0.0.1"));
  EXPECT_THAT(outcomes[1].error(), fails(Code::kTimedOut, "rank 0", "call"));
}

// Of this process.
std::size_t open_sockets() {
  std::size_t count = 0;
  std::error_code gone;  // one that is closed while it is looked at
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    count += target.starts_with("socket:") ? 1 : 0;
  }
  return count;
}

// A child that lives on, from when two of three ranks have met, hides no end of theirs.
TEST(TcpMeeting, AChildThatIsForkedMeanwhileKeepsNoConnectionOpen) {
  const std::size_t before = open_sockets();
  Place place = make_place(3);
  std::vector<std::vector<Links>> links(3);
  const auto come = [&](std::size_t rank) {
    return std::jthread([&, rank] {
      Meeting meeting(static_cast<int>(rank), place.addresses, std::move(place.listeners[rank]));
      auto met = meeting.run(deadline_in(20), 20);
      ASSERT_TRUE(met.has_value()) << met.error().message();
      links[rank] = std::move(met).value();
    });
  };
  std::vector<std::jthread> ranks;
  for (const std::size_t first : {0, 1}) ranks.push_back(come(first));
  // Three that listen, both ends of what the two have between them, and two calls of each.
  for (int look = 0; open_sockets() < before + 3 + 4 + 4 && look < 2000; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    while (true) pause();
  }
  ASSERT_GT(child, 0);
  ranks.push_back(come(2));
  ranks.clear();
  links[0].clear();  // as if it had ended
  for (const std::size_t other : {1, 2}) {
    for (const Fd* fd : {&links[other][0].bulk, &links[other][0].control}) {
      std::byte seen{};
      EXPECT_TRUE(rendezvous::wait_readable(fd->get(), deadline_in(5)).ok()) << other;
      EXPECT_EQ(rendezvous::read_some(fd->get(), ByteSpan(&seen, 1)).kind,
                rendezvous::Moved::Kind::kClosed)
          << other;
    }
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// Reads until `bytes` are full or the connection ends; how many came.
std::size_t read_fully(const Fd& fd, ByteSpan bytes) {
  std::size_t got = 0;
  while (got < bytes.size() && rendezvous::wait_readable(fd.get(), deadline_in(5)).ok()) {
    const auto moved = rendezvous::read_some(fd.get(), bytes.subspan(got));
    if (moved.kind == rendezvous::Moved::Kind::kClosed) break;
    got += moved.bytes;
  }
  return got;
}

// Who knows the protocol, but not the key: a proof with the right one is welcome, another is not,
// and a rank is called by lower ones alone.
TEST(TcpMeeting, AProofWithAnotherKeyIsRefused) {
  Place place = make_place(3);
  const PeerAddress called = place.addresses[1];
  const auto come = [&](std::size_t rank) {
    return std::jthread([&place, rank] {
      Meeting meeting(static_cast<int>(rank), place.addresses, std::move(place.listeners[rank]));
      EXPECT_TRUE(meeting.run(deadline_in(20), 20).has_value()) << rank;
    });
  };
  std::vector<std::jthread> ranks;
  ranks.push_back(come(1));
  struct Try {
    int from;
    const char* secret;
    std::size_t challenged, welcomed;
  };
  for (const Try& each : {Try{0, "s", kChallengeBytes, kWelcome.size()},
                          Try{0, "other", kChallengeBytes, 0}, Try{2, "s", 0, 0}}) {
    auto fd = rendezvous::connect_to({called.host, called.port}, deadline_in(5));
    ASSERT_TRUE(fd.has_value());
    const auto hello = encode(Hello{
        .kind = LinkKind::kBulk, .from = each.from, .to = 1, .nonce = rendezvous::random_nonce()});
    ASSERT_EQ(rendezvous::write_some(fd.value().get(), hello).bytes, kHelloBytes);
    std::vector<std::byte> challenge(kChallengeBytes), welcome(kWelcome.size());
    ASSERT_EQ(read_fully(fd.value(), challenge), each.challenged);
    if (each.challenged == 0) continue;
    const auto proof = make_proof(greeting_key(each.secret, "job", "1"), hello, challenge);
    ASSERT_EQ(rendezvous::write_some(fd.value().get(), proof).bytes, kProofBytes);
    EXPECT_EQ(read_fully(fd.value(), welcome), each.welcomed) << each.secret;
  }
  for (const std::size_t other : {0, 2}) ranks.push_back(come(other));  // later calls count
}

}  // namespace
}  // namespace gradwire::tcp::tcp_meeting_test
