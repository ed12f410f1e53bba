// Connections between ranks as threads, with strangers in between.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
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

struct Links {
  Fd bulk, control;
};

// Of rank `rank` with all others, by rank.
Result<std::vector<Links>> meet_all(Meeting& meeting, int rank, std::size_t size, double seconds) {
  std::vector<int> others;
  for (int other = 0; other < static_cast<int>(size); ++other) {
    if (other != rank) others.push_back(other);
  }
  GW_TRY(meeting.start());
  GW_ASSIGN(auto made, meeting.run(others, deadline_in(seconds), seconds));
  std::vector<Links> links(size);
  for (Meeting::News& one : made) {
    Links& mine = links[static_cast<std::size_t>(one.rank)];
    (one.kind == LinkKind::kBulk ? mine.bulk : mine.control) = std::move(one.fd);
  }
  return links;
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
      outcomes[r] = meet_all(meeting, static_cast<int>(r), place.addresses.size(), seconds);
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
      outcomes[1] = meet_all(meeting, 1, 2, 1);
    });
    Meeting meeting(0, place.addresses, std::move(place.listeners[0]));
    outcomes[0] = meet_all(meeting, 0, 2, 1);
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
      auto met = meet_all(meeting, static_cast<int>(rank), 3, 20);
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

// A rank that goes on with its connections until this is gone.
class Going {
 public:
  Going(Place& place, int rank)
      : meeting_(rank, place.addresses,
                 std::move(place.listeners[static_cast<std::size_t>(rank)])) {
    EXPECT_TRUE(meeting_.start().ok());
  }
  void call(int rank, LinkKind kind) { meeting_.call(rank, kind); }
  void bar(int rank) { meeting_.bar(rank); }
  void begin() {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        auto news = meeting_.advance(std::chrono::steady_clock::now());
        ASSERT_TRUE(news.has_value());
        for (Meeting::News& one : news.value()) {
          so_far_ += one.fd.valid() ? 1 : 0;
          (one.fd.valid() ? made_ : failed_).push_back(std::move(one));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  void end() { thread_ = std::jthread(); }
  std::size_t made_so_far() const { return so_far_; }
  // After end().
  std::vector<Meeting::News>& made() { return made_; }
  std::vector<Meeting::News>& failed() { return failed_; }

 private:
  Meeting meeting_;
  std::vector<Meeting::News> made_, failed_;
  std::atomic<std::size_t> so_far_{0};
  std::jthread thread_;
};

// What a caller that is not `Meeting` gets: bytes of a challenge, and of a welcome.
std::pair<std::size_t, std::size_t> try_call(const PeerAddress& called, int from,
                                             const char* secret) {
  auto fd = rendezvous::connect_to({called.host, called.port}, deadline_in(5));
  EXPECT_TRUE(fd.has_value());
  const auto hello = encode(
      Hello{.kind = LinkKind::kBulk, .from = from, .to = 1, .nonce = rendezvous::random_nonce()});
  EXPECT_EQ(rendezvous::write_some(fd.value().get(), hello).bytes, kHelloBytes);
  std::vector<std::byte> challenge(kChallengeBytes), welcome(kWelcome.size());
  const std::size_t challenged = read_fully(fd.value(), challenge);
  if (challenged < kChallengeBytes) return {challenged, 0};
  const auto proof = make_proof(greeting_key(secret, "job", "1"), hello, challenge);
  EXPECT_EQ(rendezvous::write_some(fd.value().get(), proof).bytes, kProofBytes);
  return {challenged, read_fully(fd.value(), welcome)};
}

// Who knows the protocol, but not the key: a proof with the right one is welcome, another is not,
// and who is connected, or barred, is not asked for one.
TEST(TcpMeeting, AProofWithAnotherKeyIsRefused) {
  Place place = make_place(4);
  Going called(place, 1);
  called.bar(3);
  called.begin();
  using Seen = std::pair<std::size_t, std::size_t>;
  const PeerAddress address = place.addresses[1];
  EXPECT_EQ(try_call(address, 0, "other"), Seen(kChallengeBytes, 0));
  EXPECT_EQ(try_call(address, 0, "s"), Seen(kChallengeBytes, kWelcome.size()));
  EXPECT_EQ(try_call(address, 0, "s"), Seen(0, 0));
  EXPECT_EQ(try_call(address, 2, "s"), Seen(kChallengeBytes, kWelcome.size()));
  EXPECT_EQ(try_call(address, 3, "s"), Seen(0, 0));
  EXPECT_EQ(try_call(address, 1, "s"), Seen(0, 0));
  EXPECT_EQ(try_call(address, 4, "s"), Seen(0, 0));
  called.end();
  EXPECT_EQ(called.made().size(), 2u);
}

// Each calls all others at the same time, again and again: one connection comes of it.
TEST(TcpMeeting, TwoThatCallEachOtherMakeOneConnection) {
  constexpr std::size_t kRanks = 3;
  for (int round = 0; round < 20; ++round) {
    Place place = make_place(kRanks);
    std::vector<std::unique_ptr<Going>> ranks;
    for (int rank = 0; rank < static_cast<int>(kRanks); ++rank) {
      ranks.push_back(std::make_unique<Going>(place, rank));
      for (const int other : {(rank + 1) % 3, (rank + 2) % 3}) {
        ranks.back()->call(other, LinkKind::kBulk);
      }
    }
    for (const auto& rank : ranks) rank->begin();
    const auto all = [&](const auto& rank) { return rank->made_so_far() >= kRanks - 1; };
    for (int look = 0; look < 2000 && !std::ranges::all_of(ranks, all); ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    for (const auto& rank : ranks) rank->end();
    for (std::size_t a = 0; a < kRanks; ++a) {
      ASSERT_EQ(ranks[a]->made().size(), kRanks - 1);
      for (const Meeting::News& one : ranks[a]->made()) {
        auto& others = ranks[static_cast<std::size_t>(one.rank)]->made();
        const auto back = std::ranges::find(others, static_cast<int>(a), &Meeting::News::rank);
        ASSERT_NE(back, others.end());
        EXPECT_TRUE(joined(one.fd, back->fd)) << a << " " << one.rank;
      }
    }
  }
}

TEST(TcpMeeting, WhoListensNoLongerIsSaidToRefuse) {
  Place place = make_place(2);
  place.listeners[1].clear();
  Going caller(place, 0);
  caller.call(1, LinkKind::kControl);
  caller.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  caller.end();
  ASSERT_FALSE(caller.failed().empty());
  EXPECT_EQ(caller.failed()[0].error, ECONNREFUSED);
  EXPECT_TRUE(caller.made().empty());
}

}  // namespace
}  // namespace gradwire::tcp::tcp_meeting_test
