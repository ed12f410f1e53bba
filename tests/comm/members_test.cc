// The table of a job's members: how they come to it, its versions, and whether they are more than
// the processors. Of transports the laws ask that
// (tests/laws/transport/transport_recovery_laws.cc).
#include "comm/members.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "comm/host.h"
#include "comm/inproc/inproc_transport.h"
#include "comm/rendezvous/agree.h"
#include "tests/support/fails.h"

namespace gradwire::comm::members_test {
namespace {

Processors of(std::initializer_list<unsigned> numbers) {
  Processors processors{};
  for (const unsigned i : numbers) processors[i / 64] |= std::int64_t{1} << i % 64;
  return processors;
}

bool crowded(const std::vector<Processors>& ranks) { return is_crowded(ranks); }

TEST(Members, AreCrowdedByTheProcessorsThatTheyMayUseTogether) {
  EXPECT_FALSE(crowded({of({0})}));
  EXPECT_FALSE(crowded({of({0}), of({1})}));        // each on its own
  EXPECT_FALSE(crowded({of({0, 1}), of({0, 1})}));  // two for two
  EXPECT_TRUE(crowded({of({7}), of({7})}));         // on a machine with many more
  EXPECT_TRUE(crowded({of({0, 1}), of({0, 1}), of({1})}));
  EXPECT_FALSE(crowded({of({0, 1}), of({0, 1}), of({1, 100})}));
}

TEST(Members, OfOtherMachinesAndThoseWhoLeftDoNotCrowd) {
  const std::string own = process_space();
  const std::string beside = own.substr(0, own.find('/')) + "/pid:[1]";  // a container
  Members members(0, {{.node = own, .processors = of({3})},
                      {.node = "another-boot/pid:[1]", .processors = of({3})},
                      {.node = "-", .processors = of({3})},
                      {.node = beside, .processors = of({3})}});
  EXPECT_TRUE(members.is_crowded());
  members.advance(std::vector{0, 1, 2}, 1);
  EXPECT_FALSE(members.is_crowded());
}

TEST(Members, ProcessorsAreReadAsTheyWereWritten) {
  EXPECT_EQ(word_of(of({0, 1})), "3");
  EXPECT_EQ(word_of(of({4, 128, 63})), "8000000000000010.0.1");
  EXPECT_EQ(word_of({}), "0");
  for (const auto& processors : {of({}), of({0}), of({63}), of({64, 1023}), of({5, 700})})
    EXPECT_EQ(read_processors(word_of(processors)), processors);
  for (const char* word :
       {"", "x", "3.", ".3", "3 ", "-1", "11111111111111111", "1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1"})
    EXPECT_EQ(read_processors(word), std::nullopt) << word;
}

TEST(Members, ThatAreThreadsCrowdTheirProcess) {
  const Processors own = usable_processors();
  int count = 0;
  for (const std::int64_t word : own)
    count += __builtin_popcountll(static_cast<unsigned long long>(word));
  for (const int ranks : {count, count + 1}) {
    const auto transports = make_inproc_transports(ranks);
    ASSERT_TRUE(transports.has_value());
    EXPECT_EQ(transports.value()[0]->is_crowded(), ranks > count);
  }
}

TEST(Members, KeepTheirUidsInEveryVersion) {
  Members members(1, std::vector<Member>(4), 0x7f);
  EXPECT_EQ(members.version(), 0u);
  EXPECT_EQ(members.epoch(), 0x7f);
  members.advance(std::vector{1, 3}, 2);
  EXPECT_EQ(members.version(), 2u);
  EXPECT_EQ(members.epoch(), 1);  // of 7 bits
  EXPECT_EQ(members.job_epoch(), 0x7f);
  EXPECT_EQ(members.size(), 4);
  for (const int uid : {0, 1, 2, 3}) EXPECT_EQ(members.has(uid), uid % 2 == 1);
}

// Counts what its rank reads.
class CountingStore : public KeyValueStore {
 public:
  CountingStore(std::shared_ptr<KeyValueStore> store, int& reads) : store_(store), reads_(reads) {}
  Status set(std::string_view key, ConstByteSpan value, Deadline deadline) override {
    return store_->set(key, value, deadline);
  }
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    ++reads_;
    return store_->get(key, deadline);
  }

 private:
  std::shared_ptr<KeyValueStore> store_;
  int& reads_;
};

TEST(Members, MeetByOneReadOfEachButRankZero) {
  constexpr int kRanks = 9;
  const auto store = make_inproc_store();
  std::vector<int> reads(kRanks, 0);
  std::vector<std::string> faults(kRanks);
  std::vector<std::jthread> ranks;
  const auto address_of = [](int rank) { return std::string("a\0 \n", 4) + std::to_string(rank); };
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      const Rendezvous job{.rank = rank,
                           .size = kRanks,
                           .store = std::make_shared<CountingStore>(store, reads[at]),
                           .secret = "secret"};
      const auto members = Members::meet(job, "test", address_of(rank));
      if (!members.has_value()) faults[at] = members.error().message();
      for (int uid = 0; members.has_value() && uid < kRanks; ++uid) {
        const Member& member = members.value().at(uid);
        const bool good = member.address == address_of(uid) && member.pid == getpid() &&
                          member.node == process_space();
        if (!good) faults[at] = "another address, process or node of rank " + std::to_string(uid);
      }
    });
  }
  ranks.clear();
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
  EXPECT_EQ(reads[0], kRanks - 1);
  for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(reads[static_cast<std::size_t>(rank)], 1);
}

// More than a key may hold.
TEST(Members, MayHaveAddressesOfAnyLength) {
  const auto store = make_inproc_store();
  std::vector<std::jthread> ranks;
  for (const int rank : {0, 1, 2}) {
    ranks.emplace_back([&, rank] {
      const std::string own(700'000, static_cast<char>('a' + rank));
      const auto all = rendezvous::gather({.rank = rank, .size = 3, .store = store}, "long", own);
      EXPECT_TRUE(all.has_value() && all.value()[2] == std::string(700'000, 'c'));
    });
  }
}

TEST(Members, NameWhoHasNotCome) {
  const Rendezvous job{.rank = 1, .size = 3, .store = make_inproc_store(), .timeout_seconds = 0.05};
  const auto members = Members::meet(job, "test", "address");
  ASSERT_FALSE(members.has_value());
  EXPECT_THAT(members.error(), fails(Code::kTimedOut, "rank 2 has not come", "'test'"));
}

}  // namespace
}  // namespace gradwire::comm::members_test
