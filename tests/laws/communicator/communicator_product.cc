// Every operation x algorithm x type x reduction x odd count x in place or apart, over threads. A
// sample of it that takes turns through all of them, and the whole where GRADWIRE_TEST_FULL is set.
#include <gtest/gtest.h>

#include <functional>

#include "tests/laws/communicator/communicator_programs.h"
#include "tests/support/short_run.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

void run(int ranks, const std::function<std::string(Communicator& world)>& program) {
  auto worlds = make_inproc_communicators(ranks, {.deadline_seconds = 60, .algorithm = "auto"});
  ASSERT_TRUE(worlds.has_value()) << worlds.error().message();
  const auto faults = on_threads<std::string>(ranks, [&](int r) {
    auto& world = worlds.value()[static_cast<std::size_t>(r)];
    std::string fault = program(*world);
    world.reset();
    return fault;
  });
  for (std::size_t r = 0; r < faults.size(); ++r) EXPECT_EQ(faults[r], "") << "rank " << r;
}

class R1_CommunicatorProduct : public testing::TestWithParam<int> {
 protected:
  // Strides are prime to the lengths of the lists (2, 6, 7, 8), so every value of each is met; each
  // number of ranks has other cases.
  Sizes sizes() const {
    const std::int64_t p = GetParam();
    return {.elems = {0, 1, p - 1, p, p + 1, 997, 65537},
            .stride = is_short_run() ? 101 : 1,
            .first = 5 * GetParam()};
  }
};

TEST_P(R1_CommunicatorProduct, Reduces) {
  run(GetParam(), [this](Communicator& world) { return reduce_exactly(world, sizes()); });
}
TEST_P(R1_CommunicatorProduct, Moves) {
  run(GetParam(), [this](Communicator& world) { return move_exactly(world, sizes()); });
}

// One of the 12 combinations of reduction and place for each algorithm, another one each time.
class R1_CommunicatorLargeProduct : public testing::TestWithParam<int> {
 protected:
  Sizes sizes() const {
    return {.elems = {1000003}, .stride = is_short_run() ? 13 : 1, .only_f32 = is_short_run()};
  }
};

TEST_P(R1_CommunicatorLargeProduct, Reduces) {
  run(GetParam(), [this](Communicator& world) { return reduce_exactly(world, sizes()); });
}
TEST_P(R1_CommunicatorLargeProduct, Moves) {
  run(GetParam(), [this](Communicator& world) { return move_exactly(world, sizes()); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, R1_CommunicatorProduct, testing::Range(1, 18));
INSTANTIATE_TEST_SUITE_P(Ranks, R1_CommunicatorLargeProduct, testing::Values(2, 3, 8, 17));

}  // namespace
}  // namespace gradwire
