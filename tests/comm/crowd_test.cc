// More ranks than processors: by hand, and among ranks as threads. Of other transports the laws ask
// it (tests/laws/transport_recovery_laws.cc).
#include "comm/crowd.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/inproc/inproc_transport.h"
#include "comm/process_state.h"

namespace gradwire::comm::crowd_test {
namespace {

shm::Processors of(std::initializer_list<unsigned> numbers) {
  shm::Processors processors{};
  for (const unsigned i : numbers) processors[i / 64] |= std::int64_t{1} << i % 64;
  return processors;
}

bool crowded(const std::vector<shm::Processors>& ranks) {
  Crowd crowd;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    crowd.add(static_cast<int>(r), process_space(), ranks[r]);
  return crowd.is_crowded();
}

TEST(Crowd, IsOfRanksAndTheProcessorsThatTheyMayUseTogether) {
  EXPECT_FALSE(crowded({of({0})}));
  EXPECT_FALSE(crowded({of({0}), of({1})}));        // each on its own
  EXPECT_FALSE(crowded({of({0, 1}), of({0, 1})}));  // two for two
  EXPECT_TRUE(crowded({of({7}), of({7})}));         // on a machine with many more
  EXPECT_TRUE(crowded({of({0, 1}), of({0, 1}), of({1})}));
  EXPECT_FALSE(crowded({of({0, 1}), of({0, 1}), of({1, 100})}));
}

TEST(Crowd, DoesNotCountOtherMachinesNorTheLost) {
  Crowd crowd;
  crowd.add(0, process_space(), of({3}));
  crowd.add(1, "another-boot/pid:[1]", of({3}));
  crowd.add(2, "-", of({3}));
  EXPECT_FALSE(crowd.is_crowded());
  const std::string boot = process_space().substr(0, process_space().find('/'));
  crowd.add(3, boot + "/pid:[1]", of({3}));  // a container beside this one
  EXPECT_TRUE(crowd.is_crowded());
  crowd.keep(std::vector{0, 1, 2});
  EXPECT_FALSE(crowd.is_crowded());
}

TEST(Crowd, WordsAreReadAsTheyWereWritten) {
  EXPECT_EQ(Crowd::word_of(of({0, 1})), "3");
  EXPECT_EQ(Crowd::word_of(of({4, 128, 63})), "8000000000000010.0.1");
  EXPECT_EQ(Crowd::word_of({}), "0");
  for (const auto& processors : {of({}), of({0}), of({63}), of({64, 1023}), of({5, 700})})
    EXPECT_EQ(Crowd::read(Crowd::word_of(processors)), processors);
  for (const char* word :
       {"", "x", "3.", ".3", "3 ", "-1", "11111111111111111", "1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1"})
    EXPECT_EQ(Crowd::read(word), std::nullopt) << word;
}

TEST(Crowd, OfThreadsIsThatOfTheirProcess) {
  const shm::Processors own = shm::usable_processors();
  int count = 0;
  for (const std::int64_t word : own)
    count += __builtin_popcountll(static_cast<unsigned long long>(word));
  for (const int ranks : {count, count + 1}) {
    const auto transports = make_inproc_transports(ranks);
    ASSERT_TRUE(transports.has_value());
    EXPECT_EQ(transports.value()[0]->is_crowded(), ranks > count);
  }
}

}  // namespace
}  // namespace gradwire::comm::crowd_test
