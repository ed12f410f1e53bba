// The TCP store among strangers, scanners, misfits and ranks that come late or never.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "base/philox.h"
#include "comm/rendezvous/channel.h"
#include "comm/rendezvous/tcp_server.h"
#include "comm/rendezvous/tcp_store.h"
#include "gradwire/rendezvous.h"
#include "tests/support/names.h"

namespace gradwire::rendezvous_tcp_test {
namespace {

using rendezvous::Fd;

ConstByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Rank 0's store of a job, and clients for it.
class Tcp : public ::testing::Test {
 protected:
  void serve(int size, const std::string& secret = "") {
    options_ = {.size = size, .secret = secret, .timeout_seconds = 20};
    auto store = make_tcp_store(options_);
    ASSERT_TRUE(store.has_value()) << store.error().message();
    server_ = store.value();
    options_.port = tcp_store_port(*server_);
  }
  Result<std::shared_ptr<KeyValueStore>> join(int rank) {
    TcpStoreOptions options = options_;
    options.rank = rank;
    return make_tcp_store(options);
  }
  Fd stranger() {
    auto fd = rendezvous::connect_to({"127.0.0.1", options_.port}, deadline_in(10));
    EXPECT_TRUE(fd.has_value());
    return fd.has_value() ? std::move(fd).value() : Fd();
  }
  // Rank `rank` joins and exchanges a value with rank 0.
  void expect_served(int rank) {
    const auto store = join(rank);
    ASSERT_TRUE(store.has_value()) << store.error().message();
    const std::string key = "rank/" + std::to_string(rank);
    ASSERT_TRUE(store.value()->set(key, bytes_of("x"), deadline_in(10)).ok());
    EXPECT_TRUE(server_->get(key, deadline_in(10)).has_value());
  }
  // By rank 0, at this job's place, for a reason that names these.
  template <typename... Words>
  void expect_refused(const TcpStoreOptions& options, const Words&... words) {
    const auto store = make_tcp_store(options);
    ASSERT_FALSE(store.has_value());
    EXPECT_THAT(store.error(),
                fails(Code::kInvalidArgument, "rank " + std::to_string(options.rank),
                      "127.0.0.1:" + std::to_string(options_.port), "refused", words...));
  }

  TcpStoreOptions options_;
  std::shared_ptr<KeyValueStore> server_;
};

// What the other end sent until it closed; nullopt if it did not within ten seconds.
std::optional<std::size_t> bytes_until_closed(int fd) {
  std::size_t count = 0;
  std::array<std::byte, 4096> chunk{};
  const Deadline until = deadline_in(10);
  while (true) {
    const auto moved = rendezvous::read_some(fd, chunk);
    if (moved.kind == rendezvous::Moved::Kind::kClosed) return count;
    count += moved.bytes;
    if (!rendezvous::wait_readable(fd, until).ok()) return std::nullopt;
  }
}

TEST_F(Tcp, GarbageIsDroppedAndTheOthersAreServed) {
  serve(3, "secret");
  std::vector<Fd> fds;
  for (std::uint64_t i = 0; i < 40; ++i) {
    fds.push_back(stranger());
    std::vector<std::byte> noise(1 + 37 * i);
    for (std::size_t b = 0; b < noise.size(); ++b)
      noise[b] = static_cast<std::byte>(mix64(i * 100000 + b));
    (void)rendezvous::write_some(fds.back().get(), noise);
  }
  expect_served(1);
  for (const Fd& fd : fds) {
    // Few bytes may be the start of a message; the end of sending shows that it is none.
    ::shutdown(fd.get(), SHUT_WR);
    EXPECT_EQ(bytes_until_closed(fd.get()), 0U);
  }
  expect_served(2);
}

TEST_F(Tcp, AnHttpRequestIsDropped) {
  serve(2);
  const Fd fd = stranger();
  (void)rendezvous::write_some(fd.get(), bytes_of("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_EQ(bytes_until_closed(fd.get()), 0U);
  expect_served(1);
}

TEST_F(Tcp, MisfitsLearnWhyAndTheOthersAreServed) {
  serve(3, "secret");
  TcpStoreOptions misfit = options_;
  misfit.rank = 1;
  misfit.secret = "sesame";
  expect_refused(misfit, "wrong", "secret");
  misfit.secret = "";
  expect_refused(misfit, "no", "secret");
  misfit = options_;
  misfit.rank = 1;
  misfit.job = "other";
  expect_refused(misfit, "job 'other'");
  misfit = options_;
  misfit.rank = 3;
  misfit.size = 4;
  expect_refused(misfit, "4 ranks", "3");

  const auto first = join(1);
  ASSERT_TRUE(first.has_value());
  misfit = options_;
  misfit.rank = 1;
  expect_refused(misfit, "taken");
  EXPECT_TRUE(first.value()->set("still", bytes_of("here"), deadline_in(10)).ok());
  expect_served(2);
}

TEST_F(Tcp, ARankThatNeverComesIsNamed) {
  serve(4);
  const auto one = join(1);
  ASSERT_TRUE(one.has_value());
  {
    const auto three = join(3);
    ASSERT_TRUE(three.has_value());
  }  // says goodbye
  for (KeyValueStore* store : {server_.get(), one.value().get()}) {
    const auto missing = store->get("address/2", deadline_in(0.2));
    ASSERT_FALSE(missing.has_value());
    // Not the time: a busy machine takes longer.
    EXPECT_THAT(missing.error(), fails(Code::kTimedOut, "'address/2'", "join", ": 2"));
  }
}

TEST_F(Tcp, ARankWhoseConnectionBreaksIsNamed) {
  serve(2);
  {
    Fd fd = stranger();
    options_.rank = 1;
    ASSERT_TRUE(rendezvous::shake_hands(fd.get(), options_, deadline_in(10)).has_value());
  }
  const auto missing = server_->get("address/1", deadline_in(0.5));
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error(), fails(Code::kTimedOut, "'address/1'", "disconnected", ": 1"));
}

TEST_F(Tcp, HalfOpenConnectionsStallNobody) {
  serve(3, "secret");
  std::vector<Fd> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(stranger());
    if (i % 2 == 0) (void)rendezvous::write_some(silent.back().get(), bytes_of(std::string(3, 1)));
  }
  expect_served(1);
  expect_served(2);
  while (silent.size() < 400) silent.push_back(stranger());  // more than the server keeps
  EXPECT_EQ(bytes_until_closed(silent.front().get()), 0U);   // the oldest has made room
}

// A flood of strangers does not throw out the rank that has begun its handshake.
TEST_F(Tcp, WhoHasSaidAGoodHelloGoesLast) {
  auto listener = rendezvous::listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listener.has_value());
  options_.port = rendezvous::local_port(listener.value().get()).value();
  auto job = std::make_shared<rendezvous::JobState>("job", 2, "");
  const auto server = rendezvous::TcpServer::start(
      std::move(listener).value(), job,
      {.handshake_seconds = 60, .goodbye_seconds = 0.1, .max_strangers = 4});
  ASSERT_TRUE(server.has_value());
  const Fd rank = stranger();
  rendezvous::Channel channel;
  channel.send(rendezvous::Kind::kHello,
               encode(rendezvous::Hello{.rank = 1, .size = 2, .nonce = {}, .job = "job"}));
  (void)rendezvous::write_some(rank.get(), channel.outgoing());
  ASSERT_TRUE(rendezvous::wait_readable(rank.get(), deadline_in(10)).ok());  // the challenge
  std::vector<Fd> flood;
  for (int i = 0; i < 20; ++i) flood.push_back(stranger());
  EXPECT_EQ(bytes_until_closed(flood.front().get()), 0U);
  std::array<std::byte, 4096> chunk{};
  const auto challenge = rendezvous::read_some(rank.get(), chunk);
  EXPECT_EQ(challenge.kind, rendezvous::Moved::Kind::kSome);
  channel.consume(channel.outgoing().size());
  channel.send(rendezvous::Kind::kProof, encode(rendezvous::Proof{}));  // zero without a secret
  (void)rendezvous::write_some(rank.get(), channel.outgoing());
  ASSERT_TRUE(rendezvous::wait_readable(rank.get(), deadline_in(10)).ok());
  EXPECT_EQ(rendezvous::read_some(rank.get(), chunk).kind, rendezvous::Moved::Kind::kSome);
}

TEST_F(Tcp, SilentConnectionsAreDroppedAfterAWhile) {
  auto listener = rendezvous::listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listener.has_value());
  options_.port = rendezvous::local_port(listener.value().get()).value();
  auto job = std::make_shared<rendezvous::JobState>("job", 2, "");
  const auto server = rendezvous::TcpServer::start(
      std::move(listener).value(), job, {.handshake_seconds = 0.1, .goodbye_seconds = 0.1});
  ASSERT_TRUE(server.has_value());
  const Fd silent = stranger();
  const Fd slow = stranger();
  (void)rendezvous::write_some(slow.get(), bytes_of("\x05"));
  EXPECT_EQ(bytes_until_closed(silent.get()), 0U);
  EXPECT_EQ(bytes_until_closed(slow.get()), 0U);
}

// A message that comes byte by byte is served when it is whole, and stalls nobody before.
TEST_F(Tcp, ASlowWriterIsServedAndStallsNobody) {
  serve(3);
  Fd fd = stranger();
  options_.rank = 1;
  auto channel = rendezvous::shake_hands(fd.get(), options_, deadline_in(10));
  ASSERT_TRUE(channel.has_value()) << channel.error().message();
  const rendezvous::Set set{1, "slow", {std::byte{'s'}}};
  channel.value().send(rendezvous::Kind::kSet, encode(set));
  bool served = false;
  while (!channel.value().outgoing().empty()) {
    ASSERT_EQ(rendezvous::write_some(fd.get(), channel.value().outgoing().first(1)).bytes, 1U);
    channel.value().consume(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (!served && channel.value().outgoing().size() < 10) {
      EXPECT_FALSE(server_->get("slow", deadline_in(0)).has_value());
      expect_served(2);
      served = true;
    }
  }
  EXPECT_TRUE(served);
  EXPECT_TRUE(server_->get("slow", deadline_in(10)).has_value());
}

TEST(TcpClient, GivesUpInTimeWhereNobodyServes) {
  const auto reserved = rendezvous::reserve_port("127.0.0.1", 0);
  ASSERT_TRUE(reserved.has_value());
  const int port = rendezvous::local_port(reserved.value().get()).value();
  const auto store = make_tcp_store({.port = port, .rank = 1, .size = 2, .timeout_seconds = 0.3});
  ASSERT_FALSE(store.has_value());
  EXPECT_THAT(store.error(),
              fails(Code::kTimedOut, "rank 1", "127.0.0.1:" + std::to_string(port), "rank 0"));
}

TEST(TcpClient, MeetsServersOfOtherProtocolsAndSilentOnes) {
  const auto listener = rendezvous::listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listener.has_value());
  const int port = rendezvous::local_port(listener.value().get()).value();
  const TcpStoreOptions options{.port = port, .rank = 1, .size = 2, .timeout_seconds = 0.5};
  const auto silent = make_tcp_store(options);  // the kernel answers, nobody else
  ASSERT_FALSE(silent.has_value());
  EXPECT_EQ(silent.error().code(), Code::kTimedOut) << silent.error().message();

  // The connection of the silent try comes first in the queue.
  std::thread other([&] {
    for (int i = 0; i < 2; ++i) {
      if (!rendezvous::wait_readable(listener.value().get(), deadline_in(10)).ok()) return;
      const Fd fd(::accept(listener.value().get(), nullptr, nullptr));
      (void)rendezvous::write_some(fd.get(), bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n"));
      (void)bytes_until_closed(fd.get());
    }
  });
  TcpStoreOptions patient = options;
  patient.timeout_seconds = 20;
  const auto http = make_tcp_store(patient);
  other.join();
  ASSERT_FALSE(http.has_value());
  EXPECT_THAT(http.error(), fails(Code::kInvalidArgument, "127.0.0.1:" + std::to_string(port),
                                  "no gradwire rendezvous"));
}

TEST(TcpClient, RefusesBadOptions) {
  EXPECT_FALSE(make_tcp_store({.rank = 2, .size = 2}).has_value());
  EXPECT_FALSE(make_tcp_store({.rank = 0, .size = 0}).has_value());
  EXPECT_FALSE(make_tcp_store({.port = 0, .rank = 1, .size = 2}).has_value());
  EXPECT_FALSE(make_tcp_store({.size = 2, .timeout_seconds = 0}).has_value());
  EXPECT_FALSE(make_tcp_store({.size = 2, .job = std::string(300, 'j')}).has_value());
}

// Rank 0 may be done first: those who still ask are served before it goes.
TEST_F(Tcp, RankZeroWaitsForTheGoodbyesOfTheOthers) {
  serve(3);
  const auto one = join(1);
  ASSERT_TRUE(one.has_value());
  ASSERT_TRUE(server_->set("k", bytes_of("v"), deadline_in(1)).ok());
  std::thread goes([&] { server_.reset(); });
  const auto two = join(2);  // has not even come
  EXPECT_TRUE(two.has_value() && two.value()->get("k", deadline_in(10)).has_value());
  EXPECT_TRUE(one.value()->get("k", deadline_in(10)).has_value());
  goes.join();  // bounded: these two have been silent for five seconds
  const Status gone = one.value()->set("k2", {}, deadline_in(10));
  EXPECT_EQ(gone.code(), Code::kPeerLost) << gone.message();
}

// The next job on the same port, begun by a rank before the last one's store has gone.
TEST_F(Tcp, ARankThatIsEarlyForTheNextJobWaitsForIt) {
  serve(2);
  { ASSERT_TRUE(join(1).has_value()); }
  Status came;
  std::thread early([&] {
    auto store = join(1);
    came = store.has_value() ? store.value()->set("rank/1", bytes_of("x"), deadline_in(10))
                             : store.error();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server_.reset();
  auto next = make_tcp_store(options_);
  early.join();
  ASSERT_TRUE(next.has_value()) << next.error().message();
  EXPECT_TRUE(came.ok()) << came.message();
  EXPECT_TRUE(next.value()->get("rank/1", deadline_in(10)).has_value());
}

TEST_F(Tcp, ServesOnASocketThatItIsGiven) {
  auto listener = rendezvous::listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listener.has_value());
  options_ = {.size = 2, .timeout_seconds = 10, .listen_fd = ::dup(listener.value().get())};
  server_ = make_tcp_store(options_).value();
  options_.port = tcp_store_port(*server_);
  EXPECT_EQ(options_.port, rendezvous::local_port(listener.value().get()).value());
  expect_served(1);

  const auto bad = make_tcp_store({.size = 2, .listen_fd = ::dup(STDERR_FILENO)});
  ASSERT_FALSE(bad.has_value());
  EXPECT_THAT(bad.error(), fails(Code::kInvalidArgument, "listen"));
}

TEST_F(Tcp, ListensOnAReservedPort) {
  const auto reserved = rendezvous::reserve_port("127.0.0.1", 0);
  ASSERT_TRUE(reserved.has_value());
  options_ = {.port = rendezvous::local_port(reserved.value().get()).value(),
              .size = 2,
              .timeout_seconds = 10};
  auto store = make_tcp_store(options_);
  ASSERT_TRUE(store.has_value()) << store.error().message();
  server_ = store.value();
  expect_served(1);
}

TEST_F(Tcp, ManyRanksExchangeManyKeys) {
  constexpr int kRanks = 16;
  serve(kRanks, "secret");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([this, rank] {
      const auto store = rank == 0 ? Result<std::shared_ptr<KeyValueStore>>(server_) : join(rank);
      ASSERT_TRUE(store.has_value()) << store.error().message();
      for (int round = 0; round < 10; ++round) {
        const std::string key = "round/" + std::to_string(round) + "/";
        const std::string value(static_cast<std::size_t>(rank + round), 'v');
        ASSERT_TRUE(
            store.value()->set(key + std::to_string(rank), bytes_of(value), deadline_in(30)).ok());
        for (int peer = 0; peer < kRanks; ++peer) {
          const auto seen = store.value()->get(key + std::to_string(peer), deadline_in(30));
          ASSERT_TRUE(seen.has_value()) << seen.error().message();
          EXPECT_EQ(seen.value().size(), static_cast<std::size_t>(peer + round));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HostPort, IsReadWholeOrRefused) {
  EXPECT_EQ(rendezvous::parse_host_port("h:1").value().port, 1);
  EXPECT_EQ(rendezvous::parse_host_port("[::1]:65535").value().host, "::1");
  for (const char* bad : {"", "h", ":1", "h:", "h:0", "h:65536", "h:x", "::1:4", "h:1 "}) {
    const auto parsed = rendezvous::parse_host_port(bad);
    ASSERT_FALSE(parsed.has_value()) << bad;
    EXPECT_THAT(parsed.error(), fails(Code::kInvalidArgument, "'" + std::string(bad) + "'"));
  }
}

}  // namespace
}  // namespace gradwire::rendezvous_tcp_test
