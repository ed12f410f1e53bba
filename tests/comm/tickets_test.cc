#include "comm/tickets.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/fails.h"

namespace gradwire::comm::tickets_test {
namespace {

struct Op : Message<Op> {};
using Table = BatchTable<Op>;

std::vector<Transfer> transfers(std::size_t count) {
  return std::vector<Transfer>(
      count, {Transfer::Kind::kRecv, 1, Tag::make(0, 3, 0).value(), ByteSpan(), Device()});
}

TEST(TicketsTest, ABatchSettlesWithItsLastMessage) {
  Table table;
  Batch<Op>& batch = table.add(transfers(2));
  const Ticket ticket{batch.number};
  EXPECT_FALSE(table.close(batch));
  batch.ops[1].arrived = 7;
  EXPECT_FALSE(table.close(batch));
  EXPECT_EQ(table.poll(ticket), std::nullopt);
  EXPECT_TRUE(table.close(batch));
  EXPECT_EQ(table.take_settled(), 1);
  EXPECT_EQ(table.take_settled(), 0);
  EXPECT_EQ(table.received(ticket, 1), 7u);
  EXPECT_EQ(table.received(ticket, 2), 0u);
  EXPECT_TRUE(table.poll(ticket)->ok());
  EXPECT_THAT(*table.poll(ticket), fails(Code::kInvalidArgument, "already reported"));
}

TEST(TicketsTest, StorageIsUsedAgainAndTicketsAreNot) {
  Table table;
  const Batch<Op>* first = nullptr;
  const Op* ops = nullptr;
  std::uint64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    Batch<Op>& batch = table.add(transfers(3));
    if (i == 0) first = &batch, ops = batch.ops.data();
    EXPECT_EQ(&batch, first);
    EXPECT_EQ(batch.ops.data(), ops);
    EXPECT_GT(batch.number, last);
    last = batch.number;
    table.end_all([](const Batch<Op>&) {});
    EXPECT_TRUE(table.poll(Ticket{last})->ok());
  }
}

// As of one that was given up while somebody still holds its memory.
TEST(TicketsTest, ABatchThatIsReportedEarlyIsNotUsedAgainBeforeItsMessagesAreOver) {
  Table table;
  Batch<Op>& early = table.add(transfers(1));
  const Ticket ticket{early.number};
  EXPECT_FALSE(table.close(early));
  early.status = cancelled_by(2);
  EXPECT_TRUE(table.settle(early));
  EXPECT_FALSE(table.settle(early));
  EXPECT_THAT(*table.poll(ticket), fails(Code::kCancelled, "rank 2"));
  EXPECT_NE(&table.add(transfers(1)), &early);
  EXPECT_FALSE(table.close(early));
  EXPECT_EQ(&table.add(transfers(1)), &early);
}

TEST(TicketsTest, SendsAndReceivesMeetInTheOrderOfTheirTag) {
  WaitingOps<Op> waiting;
  std::array<Op, 5> ops;
  const auto same = [](const Op& one, const Op& other) { return one.tag == other.tag; };
  for (Op& op : ops) op.tag = &op == &ops[1] ? 8 : 9;
  ops[3].kind = ops[4].kind = Transfer::Kind::kRecv;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(waiting.meet(ops[i], same), nullptr);
  EXPECT_EQ(waiting.meet(ops[3], same), &ops[0]);
  EXPECT_EQ(waiting.meet(ops[4], same), &ops[2]);
  waiting.push(ops[0], &ops[1]);
  EXPECT_EQ(waiting.find([](const Op&) { return true; }), &ops[0]);
  waiting.remove(ops[0]);
  EXPECT_EQ(waiting.take(8), &ops[1]);
  EXPECT_TRUE(waiting.empty());
}

}  // namespace
}  // namespace gradwire::comm::tickets_test
