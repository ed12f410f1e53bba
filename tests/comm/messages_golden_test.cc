// The whole sentences of what ranks are told while they meet and exchange messages, which other
// tests judge by their code and by what they name. Whoever words a message anew changes it here
// alone.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "comm/checked/checked_transport.h"
#include "comm/inproc/inproc_transport.h"
#include "comm/rendezvous/agree.h"
#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/tcp_store.h"
#include "gradwire/config.h"
#include "gradwire/rendezvous.h"
#include "gradwire/transport.h"

namespace gradwire::messages_golden_test {
namespace {

// T in place of the time that had passed, P in place of a port that the system gave.
std::string sentence(const Status& status, int port = 0) {
  std::string text(status.message());
  if (port > 0) text = std::regex_replace(text, std::regex(":" + std::to_string(port)), ":P");
  return std::regex_replace(text, std::regex("within [0-9.]+ s"), "within T s");
}

ConstByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(CommMessages, OfLaunchers) {
  using Environment = std::map<std::string, std::string>;
  const auto refusal = [](const Environment& environment) {
    const auto found = discover_launch([&](const std::string& name) -> std::optional<std::string> {
      const auto value = environment.find(name);
      return value == environment.end() ? std::nullopt : std::optional(value->second);
    });
    return sentence(found.error());
  };
  EXPECT_EQ(refusal({{"GRADWIRE_RANK", "1"}}),
            "GRADWIRE_WORLD_SIZE is not set, but GRADWIRE_RANK is (expected the number of ranks)");
  EXPECT_EQ(refusal({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
            "OMPI_COMM_WORLD_RANK (got '4', expected a whole number from 0 to 3)");
}

TEST(CommMessages, OfTheRendezvous) {
  auto served = make_tcp_store({.size = 3, .secret = "secret", .timeout_seconds = 20});
  ASSERT_TRUE(served.has_value()) << served.error().message();
  const std::shared_ptr<KeyValueStore> server = std::move(served).value();
  const int port = tcp_store_port(*server);
  ASSERT_TRUE(server->set("key", bytes_of("a"), deadline_in(10)).ok());
  EXPECT_EQ(
      sentence(server->set("key", bytes_of("b"), deadline_in(10))),
      "rank 0: rendezvous: key 'key' was set twice with different bytes (expected once; do "
      "two processes claim the same rank, or do two jobs of one name (GRADWIRE_JOB) share this "
      "store?)");
  EXPECT_EQ(
      sentence(server->get("address/2", deadline_in(0.05)).error()),
      "rank 0: rendezvous: key 'address/2' was not set within T s; ranks that did not join: 1, 2");
  const auto refused = make_tcp_store(
      {.port = port, .rank = 1, .size = 3, .secret = "sesame", .timeout_seconds = 20});
  EXPECT_EQ(sentence(refused.error(), port),
            "rank 1: rendezvous at 127.0.0.1:P: refused: wrong secret (expected the job's secret)");
  EXPECT_EQ(sentence(server->get("address/1", deadline_in(0.05)).error()),
            "rank 0: rendezvous: key 'address/1' was not set within T s; ranks that did not join: "
            "1, 2; refused connections: 1, the last of rank 1: wrong secret (expected the job's "
            "secret)");
  EXPECT_EQ(sentence(rendezvous::parse_host_port("h:0").error()),
            "rendezvous address 'h:0' (expected host:port, port 1..65535)");
  EXPECT_EQ(sentence(rendezvous::make_tcp_store_among({.port = 65535, .size = 2}, 2).error()),
            "2 ports from 65535 on (expected 1 or more, up to 65535)");
}

TEST(CommMessages, OfRanksThatDiffer) {
  const auto store = make_inproc_store();
  ASSERT_TRUE(store->set("agree/checksums/1", bytes_of("off"), deadline_in(5)).ok());
  EXPECT_EQ(sentence(rendezvous::agree(
                {.rank = 0, .size = 2, .store = store, .timeout_seconds = 10}, "checksums", "on")),
            "checksums: 'off' on rank 1 (expected 'on', as on rank 0)");
  ASSERT_TRUE(store->set("node/1", bytes_of("not 16 digits at all"), deadline_in(5)).ok());
  EXPECT_EQ(sentence(rendezvous::nodes_of_job({.rank = 0, .size = 2, .store = store}, "x").error()),
            "rank 1 sent a node name of 20 bytes (expected 16)");
}

TEST(CommMessages, OfTransports) {
  auto ranks = make_inproc_transports(2);
  ASSERT_TRUE(ranks.has_value());
  std::vector<std::byte> room(8);
  const Transfer nowhere[] = {
      {Transfer::Kind::kRecv, 5, Tag::make(3, 40, 2).value(), ByteSpan(room), {}}};
  EXPECT_EQ(sentence(ranks.value()[0]->post(nowhere).error()), "post: peer 5 (expected 0 to 1)");
  const Transfer batch[] = {
      {Transfer::Kind::kRecv, 1, Tag::make(3, 40, 2).value(), ByteSpan(room), {}}};
  const auto ticket = ranks.value()[0]->post(batch);
  ASSERT_TRUE(ticket.has_value());
  ranks.value()[1].reset();  // says goodbye
  std::optional<Status> outcome;
  const Deadline until = deadline_in(20);
  while (!outcome && std::chrono::steady_clock::now() < until) {
    (void)ranks.value()[0]->progress();
    outcome = ranks.value()[0]->poll(ticket.value());
    if (!outcome) (void)ranks.value()[0]->wait(deadline_in(0.01));
  }
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(sentence(*outcome), "rank 1 closed");
}

}  // namespace
}  // namespace gradwire::messages_golden_test
