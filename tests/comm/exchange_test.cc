// How ranks learn rank 0's address from their launcher: process managers and stores that are played
// here, well and badly.
#include "comm/rendezvous/exchange.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous/socket.h"
#include "tests/support/fails.h"

namespace gradwire::rendezvous::exchange_test {
namespace {

constexpr double kSeconds = 20;

// One end for a rank, the other for who plays the process manager.
struct Ends {
  Ends() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
    rank = Fd(fds[0]);
    manager = Fd(fds[1]);
  }
  Fd rank, manager;
};

void say(const Fd& fd, const std::string& text) {
  EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

// The next line, without its end; "" when the other end is closed or silent for too long.
std::string hear(const Fd& fd) {
  std::string line;
  const Deadline until = deadline_in(kSeconds);
  while (wait_readable(fd.get(), until).ok()) {
    char c = 0;
    if (::recv(fd.get(), &c, 1, 0) != 1) return "";
    if (c == '\n') return line;
    line += c;
  }
  return "";
}

// Answers one rank's requests by `answer` until it has none.
void play(const Fd& fd, const std::function<std::string(const std::string&)>& answer) {
  for (std::string line = hear(fd); !line.empty(); line = hear(fd)) {
    const std::string said = answer(line);
    if (said.empty()) return;
    say(fd, said);
  }
}

std::string well(const std::string& request) {
  if (request == "cmd=init pmi_version=1 pmi_subversion=1")
    return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
  if (request == "cmd=get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_7_0\n";
  if (request == "cmd=put kvsname=kvs_7_0 key=gradwire-root value=the;text")
    return "cmd=put_result rc=0 msg=success\n";
  if (request == "cmd=barrier_in") return "cmd=barrier_out\n";
  if (request == "cmd=get kvsname=kvs_7_0 key=gradwire-root")
    return "cmd=get_result rc=0 msg=success value=the;text\n";
  if (request == "cmd=finalize") return "cmd=finalize_ack\n";
  ADD_FAILURE() << request;
  return "";
}

Result<std::string> exchange_with(const std::function<std::string(const std::string&)>& answer,
                                  int rank, double seconds = kSeconds) {
  Ends ends;
  std::thread manager([&] {
    play(ends.manager, answer);
    ::shutdown(ends.manager.get(), SHUT_RDWR);
  });
  auto text = exchange_over_pmi(ends.rank.get(), rank, "the;text", deadline_in(seconds));
  ::shutdown(ends.rank.get(), SHUT_RDWR);
  manager.join();
  return text;
}

TEST(Pmi, RankZeroPutsAndAllGet) {
  std::vector<std::string> asked;
  for (const int rank : {0, 1}) {
    std::size_t puts = 0;
    const auto text = exchange_with(
        [&](const std::string& request) {
          puts += request.starts_with("cmd=put") ? 1 : 0;
          return well(request);
        },
        rank);
    ASSERT_TRUE(text.has_value()) << text.error().message();
    EXPECT_EQ(text.value(), "the;text");
    EXPECT_EQ(puts, rank == 0 ? 1U : 0U);
  }
}

TEST(Pmi, AnswersMayComeInPieces) {
  Ends ends;
  std::thread manager([&] {
    play(ends.manager, [&](const std::string& request) {
      const std::string answer = well(request);
      say(ends.manager, answer.substr(0, 5));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return answer.substr(5);
    });
  });
  const auto text = exchange_over_pmi(ends.rank.get(), 1, "", deadline_in(kSeconds));
  ::shutdown(ends.rank.get(), SHUT_RDWR);
  manager.join();
  ASSERT_TRUE(text.has_value()) << text.error().message();
  EXPECT_EQ(text.value(), "the;text");
}

struct BadManager {
  const char* name;
  const char* at;      // the request that is answered badly
  const char* answer;  // "": the connection is closed
  Code code;
  const char* named;
};

class BadManagers : public ::testing::TestWithParam<BadManager> {};

TEST_P(BadManagers, AreNamed) {
  const BadManager& bad = GetParam();
  const auto text = exchange_with(
      [&](const std::string& request) {
        return request.starts_with(bad.at) ? std::string(bad.answer) : well(request);
      },
      1);
  ASSERT_FALSE(text.has_value());
  EXPECT_THAT(text.error(), fails(bad.code, bad.named, "PMI_FD"));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadManagers,
    ::testing::Values(BadManager{"closes", "cmd=init", "", Code::kPeerLost, "cmd=init"},
                      BadManager{"another_language", "cmd=init", "HTTP/1.0 400 Bad Request\n",
                                 Code::kInvalidArgument, "'HTTP/1.0 400 Bad Request'"},
                      BadManager{"refuses", "cmd=init",
                                 "cmd=response_to_init rc=-1 msg=wrong_version\n",
                                 Code::kInvalidArgument, "rc=-1"},
                      BadManager{"no_value", "cmd=get kvs", "cmd=get_result rc=0\n",
                                 Code::kInvalidArgument, "cmd=get_result rc=0"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(Pmi, SilenceEndsAtTheDeadline) {
  Ends ends;
  const auto text = exchange_over_pmi(ends.rank.get(), 1, "", deadline_in(0.05));
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code(), Code::kTimedOut);
}

TEST(Pmi, ADescriptorThatIsNoneIsNamed) {
  const auto text = exchange_over_pmi(1 << 20, 1, "", deadline_in(kSeconds));
  ASSERT_FALSE(text.has_value());
  EXPECT_THAT(text.error(), fails(Code::kInvalidArgument, "PMI_FD", "1048576"));
}

// A store that is played: it takes all that a rank says until it waits, and answers with `bytes`.
class Store {
 public:
  explicit Store(std::string bytes) {
    auto listener = listen_on("127.0.0.1", 0);
    EXPECT_TRUE(listener.has_value());
    listener_ = std::move(listener).value();
    where_ = {"127.0.0.1", local_port(listener_.get()).value()};
    thread_ = std::thread([this, bytes = std::move(bytes)] {
      EXPECT_TRUE(wait_readable(listener_.get(), deadline_in(kSeconds)).ok());
      const Fd fd(::accept(listener_.get(), nullptr, nullptr));
      say(fd, bytes);
      std::array<std::byte, 4096> chunk{};
      while (::recv(fd.get(), chunk.data(), chunk.size(), 0) > 0) continue;
    });
  }
  ~Store() { thread_.join(); }
  const HostPort& where() const { return where_; }

 private:
  Fd listener_;
  HostPort where_;
  std::thread thread_;
};

std::string little_endian(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

TEST(TorchStore, GivesRankZerosText) {
  const std::string text = "gradwire1;h;1;s;";
  const Store store(little_endian(1) + std::string(1, '\0') + little_endian(text.size()) + text);
  const auto got = exchange_over_torch(store.where(), "none.0", 1, "", deadline_in(kSeconds));
  ASSERT_TRUE(got.has_value()) << got.error().message();
  EXPECT_EQ(got.value(), text);
}

TEST(TorchStore, SaysWhoWasFirst) {
  const Store store(little_endian(5) + "0:2,3");
  const auto held = first_over_torch(store.where(), "key", "0:0,1", deadline_in(kSeconds));
  ASSERT_TRUE(held.has_value()) << held.error().message();
  EXPECT_EQ(held.value(), "0:2,3");
  const Store mute("");
  const auto none = first_over_torch(mute.where(), "key", "0:0,1", deadline_in(0.1));
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), Code::kTimedOut);
}

TEST(TorchStore, ThatClaimsTooMuchIsRefused) {
  const Store store(little_endian(1) + std::string(1, '\0') +
                    little_endian(std::uint64_t{1} << 60));
  const auto got = exchange_over_torch(store.where(), "none.0", 1, "", deadline_in(kSeconds));
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().code(), Code::kInvalidArgument);
}

TEST(TorchStore, ThatSaysNothingEndsAtTheDeadline) {
  const Store store("");
  const auto got = exchange_over_torch(store.where(), "none.0", 1, "", deadline_in(0.1));
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().code(), Code::kTimedOut);
}

TEST(Notices, ReadBack) {
  Notice told;
  told.place = {"fe80::1", 4000};
  told.session = "ab12";
  told.secret = "secret";
  const auto notice = parse_notice(encode(told));
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice.value().place.host, "fe80::1");
  EXPECT_EQ(notice.value().place.port, 4000);
  EXPECT_EQ(notice.value().session, "ab12");
  EXPECT_EQ(notice.value().secret, "secret");
  EXPECT_TRUE(parse_notice("gradwire1;h;1;s;").has_value());
}

TEST(Notices, ThatAreNoneAreQuoted) {
  for (const char* text : {"", "gradwire1", "gradwire2;h;1;s;", "gradwire1;h;0;s;",
                           "gradwire1;;1;s;", "gradwire1;h;1;;", "gradwire1;h;x;s;t"}) {
    const auto notice = parse_notice(text);
    ASSERT_FALSE(notice.has_value()) << text;
    EXPECT_THAT(notice.error(), fails(Code::kInvalidArgument, "'" + std::string(text) + "'"));
  }
}

}  // namespace
}  // namespace gradwire::rendezvous::exchange_test
