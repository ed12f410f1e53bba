// Checksums around ranks as threads, with a network in between that changes what it carries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/checked/checked_transport.h"
#include "comm/inproc/inproc_transport.h"
#include "comm/rendezvous/agree.h"
#include "tests/support/fails.h"
#include "tests/support/passing_transport.h"

namespace gradwire::checked_transport_test {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;
using Fault = std::function<void(std::vector<Transfer>& received)>;

// Passes everything on; what a batch has received goes through `fault` before it is reported.
class FaultyTransport final : public PassingTransport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, Fault fault)
      : PassingTransport(std::move(inner)), fault_(std::move(fault)) {}
  Result<Ticket> post(std::span<const Transfer> batch) override {
    GW_ASSIGN(const Ticket ticket, inner_->post(batch));
    for (const Transfer& transfer : batch) {
      if (transfer.kind == Transfer::Kind::kRecv) receives_[ticket].push_back(transfer);
    }
    return ticket;
  }
  std::optional<Status> poll(Ticket ticket) override {
    auto outcome = inner_->poll(ticket);
    if (outcome && outcome->ok()) fault_(receives_[ticket]);
    return outcome;
  }

 private:
  Fault fault_;
  std::map<Ticket, std::vector<Transfer>> receives_;
};

Tag tag(std::uint64_t operation) { return Tag::make(3, operation, 2).value(); }

Bytes pattern(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(7 * i + i / 251);
  return bytes;
}

Status settle(Transport& transport, Ticket ticket) {
  const Deadline until = deadline_in(20);
  while (std::chrono::steady_clock::now() < until) {
    (void)transport.progress();
    if (auto outcome = transport.poll(ticket)) return *outcome;
    (void)transport.wait(deadline_in(0.01));
  }
  return {Code::kTimedOut, "the ticket did not settle"};
}

// Rank 0 sends each of `out` under operation 40, 41, ...; what rank 1's batch of receives came to.
// Both ranks have checksums, and rank 1 is behind `fault`.
Status deliver(const std::vector<Bytes>& out, std::vector<Bytes>& in, const Fault& fault) {
  auto ranks = make_inproc_transports(2);
  if (!ranks.has_value()) return ranks.error();
  const auto sender = with_checksums(std::move(ranks.value()[0]));
  const auto receiver =
      with_checksums(std::make_unique<FaultyTransport>(std::move(ranks.value()[1]), fault));
  std::vector<Transfer> sends, receives;
  std::vector<Bytes> copies = out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    sends.push_back({Transfer::Kind::kSend, 1, tag(40 + i), copies[i], {}});
    receives.push_back({Transfer::Kind::kRecv, 0, tag(40 + i), in[i], {}});
  }
  const auto sent = sender->post(sends);
  const auto received = receiver->post(receives);
  if (!sent.has_value() || !received.has_value()) return {Code::kInternal, "post"};
  Status outcome = settle(*receiver, received.value());
  const Status sends_outcome = settle(*sender, sent.value());
  return sends_outcome.ok() ? outcome : sends_outcome;
}

void flip(ByteSpan bytes, std::size_t bit) {
  bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
}

TEST(Checksums, WhatIsIntactArrives) {
  const std::vector<Bytes> out = {pattern(0), pattern(1), pattern(17), pattern(1 << 20)};
  std::vector<Bytes> in = {Bytes(4), Bytes(1), Bytes(100), Bytes(1 << 20)};  // room may be larger
  EXPECT_EQ(deliver(out, in, [](auto&) {}).message(), "ok");
  for (std::size_t i = 0; i < out.size(); ++i)
    EXPECT_TRUE(std::equal(out[i].begin(), out[i].end(), in[i].begin())) << i;
}

TEST(Checksums, EveryBitOfAMessageAndOfItsTrailerIsGuarded) {
  const std::vector<Bytes> out = {pattern(24)};
  for (std::size_t bit = 0; bit < (24 + 16) * 8; ++bit) {
    std::vector<Bytes> in = {Bytes(24)};
    const Status outcome = deliver(out, in, [bit](std::vector<Transfer>& received) {
      ASSERT_EQ(received.size(), 2u);  // the data and its trailer
      const bool data = bit < 24 * 8;
      flip(received[data ? 0 : 1].data, data ? bit : bit - 24 * 8);
    });
    ASSERT_THAT(outcome, fails(Code::kCorruptPayload, "rank 0", "rank 1", "communicator 3",
                               "operation 40", "channel 2"))
        << "bit " << bit;
  }
}

TEST(Checksums, OneBitOfAMegabyteIsFound) {
  const std::vector<Bytes> out = {pattern(1 << 20)};
  for (const std::size_t bit :
       {std::size_t{0}, std::size_t{4'000'003}, (std::size_t{8} << 20) - 1}) {
    std::vector<Bytes> in = {Bytes(1 << 20)};
    const Status outcome =
        deliver(out, in, [bit](std::vector<Transfer>& received) { flip(received[0].data, bit); });
    EXPECT_THAT(outcome, fails(Code::kCorruptPayload, "1048576")) << bit;
  }
}

// Equal bytes that belong to another message.
TEST(Checksums, ExchangedMessagesAreFound) {
  const std::vector<Bytes> out = {pattern(32), Bytes(32, std::byte{9})};
  std::vector<Bytes> in(2, Bytes(32));
  const Status outcome = deliver(out, in, [](std::vector<Transfer>& received) {
    for (std::size_t part = 0; part < 2; ++part)
      std::swap_ranges(received[part].data.begin(), received[part].data.end(),
                       received[part + 2].data.begin());
  });
  EXPECT_THAT(outcome, fails(Code::kCorruptPayload, "operation 40"));
}

TEST(Checksums, ATooLongMessageIsAMismatchAsWithout) {
  std::vector<Bytes> in = {Bytes(10)};
  const Status outcome = deliver({pattern(11)}, in, [](auto&) {});
  EXPECT_EQ(outcome.code(), Code::kRankMismatch) << outcome.message();
}

TEST(Checksums, ARankToItself) {
  auto ranks = make_inproc_transports(1);
  ASSERT_TRUE(ranks.has_value());
  const auto alone = with_checksums(std::move(ranks.value()[0]));
  Bytes out = pattern(50), in(50);
  const Transfer batch[] = {{Transfer::Kind::kSend, 0, tag(1), out, {}},
                            {Transfer::Kind::kRecv, 0, tag(1), in, {}}};
  const auto ticket = alone->post(batch);
  ASSERT_TRUE(ticket.has_value());
  EXPECT_EQ(settle(*alone, ticket.value()).message(), "ok");
  EXPECT_EQ(in, out);
  EXPECT_THAT(alone->describe(), HasSubstr("XXH3"));
}

TEST(Agree, AllRanksLearnThatOneDiffers) {
  const auto store = make_inproc_store();
  const auto outcomes = [&](const std::string& name, const std::vector<std::string>& values) {
    std::vector<Status> seen(values.size());
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < static_cast<int>(values.size()); ++rank) {
      threads.emplace_back([&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        const Rendezvous here{.rank = rank,
                              .size = static_cast<int>(values.size()),
                              .job = "j",
                              .store = store,
                              .timeout_seconds = 20};
        seen[at] = rendezvous::agree(here, name, values[at]);
      });
    }
    threads.clear();
    return seen;
  };
  for (const Status& one : outcomes("same", {"tcp", "tcp", "tcp"})) EXPECT_TRUE(one.ok());
  for (const Status& one : outcomes("transport", {"tcp", "tcp", "ucx"})) {
    EXPECT_THAT(one, fails(Code::kRankMismatch, "transport", "'ucx'", "rank 2", "'tcp'", "rank 0"));
  }
  EXPECT_TRUE(rendezvous::agree({}, "transport", "tcp").ok());  // alone
}

TEST(Everywhere, OneRankThatSaysNoIsHeardByAll) {
  const auto store = make_inproc_store();
  const auto answers = [&](const std::string& name, const std::vector<bool>& here) {
    const int ranks = static_cast<int>(here.size());
    std::vector<std::string> heard(here.size());
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        const Rendezvous met{
            .rank = rank, .size = ranks, .job = "j", .store = store, .timeout_seconds = 20};
        const auto answer = rendezvous::everywhere(met, name, here[at]);
        heard[at] = !answer.has_value() ? "error" : answer.value() ? "yes" : "no";
      });
    }
    threads.clear();
    return heard;
  };
  using testing::Each;
  EXPECT_THAT(answers("all", {true, true, true}), Each("yes"));
  EXPECT_THAT(answers("the root does not", {false, true, true}), Each("no"));
  EXPECT_THAT(answers("another does not", {true, true, false}), Each("no"));
  EXPECT_FALSE(rendezvous::everywhere({}, "alone", false).value());
  EXPECT_TRUE(rendezvous::everywhere({}, "alone", true).value());
}

}  // namespace
}  // namespace gradwire::checked_transport_test
