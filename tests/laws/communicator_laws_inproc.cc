// The laws of Communicator over the in-process transport, for 1, 2, 3, 4, 5 and 8 ranks.
#include <gtest/gtest.h>

#include "tests/laws/communicator_programs.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

using Program = std::string (*)(Communicator& world);

class CommunicatorLaws : public testing::TestWithParam<int> {
 protected:
  void run(Program program) {
    auto made = make_inproc_communicators(GetParam());
    ASSERT_TRUE(made.has_value()) << made.error().message();
    auto& worlds = made.value();
    const auto faults = on_threads<std::string>(GetParam(), [&](int r) {
      const auto at = static_cast<std::size_t>(r);
      std::string fault = program(*worlds[at]);
      worlds[at].reset();
      return fault;
    });
    for (std::size_t r = 0; r < faults.size(); ++r) EXPECT_EQ(faults[r], "") << "rank " << r;
  }
};

TEST_P(CommunicatorLaws, ReduceEverything) { run(reduce_everything); }
TEST_P(CommunicatorLaws, ReduceLarge) { run(reduce_large); }
TEST_P(CommunicatorLaws, MoveEverything) { run(move_everything); }
TEST_P(CommunicatorLaws, MoveLarge) { run(move_large); }
TEST_P(CommunicatorLaws, RowsAndColumns) { run(rows_and_columns); }
TEST_P(CommunicatorLaws, SplitAndSplitAgain) { run(split_and_split_again); }
TEST_P(CommunicatorLaws, ManyOutstanding) { run(many_outstanding); }
TEST_P(CommunicatorLaws, RefuseBadArguments) { run(refuse_bad_arguments); }
TEST_P(CommunicatorLaws, CountBytes) { run(count_bytes); }

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorLaws, testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
}  // namespace gradwire
