// State of compression that starts anew: which entries, and what is said of them.
#include "adapters/trainer/restarted_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/support/names.h"

namespace gradwire::restarted_state_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RestartedState, EntriesOfAParameterCountOnce) {
  const std::vector<std::string> names{"w.coder.q", "w.coder.p",         "v.coder.q",
                                       "w.error2",  "w.ef21.h",          "reduce/u.ef21.mean",
                                       "w.ef21.v",  "gather/w.ef21.mean"};
  const RestartedState restarted = restarted_among(names);
  EXPECT_EQ(restarted.factors, 2);
  EXPECT_EQ(restarted.shifts, 2);
}

// What a rank keeps of its range of a parameter between nodes: two of them, of which it is the
// first.
struct Between {
  std::vector<std::int64_t> range;
  std::vector<float> q{1, 2};
  std::vector<float> h{3};
  std::vector<NamedTensor> views(const std::string& parameter) {
    return {{parameter + ".outer.coder.q", view_of(std::span<float>(q))},
            {parameter + ".outer.ef21.h", view_of(std::span<float>(h))},
            {parameter + ".outer.range", view_of(std::span<std::int64_t>(range))}};
  }
};

TEST(RestartedState, FactorsOfARangeThatNobodyOwnedStartAnew) {
  Between first{{0, 4, 2, 0}};
  Between second{{4, 7, 2, 0}};
  const std::vector<std::vector<NamedTensor>> old{first.views("w"), second.views("w"), {}};
  Between same{{4, 7, 3, 1}};
  EXPECT_THAT(factors_of_new_ranges(same.views("w"), old), IsEmpty());
  for (const std::vector<std::int64_t>& range :
       {std::vector<std::int64_t>{0, 7, 2, 0}, {4, 6, 2, 0}, {3, 7, 2, 0}}) {
    Between other{range};
    EXPECT_THAT(factors_of_new_ranges(other.views("w"), old), ElementsAre("w.outer.coder.q"));
  }
  EXPECT_THAT(factors_of_new_ranges(same.views("v"), old), ElementsAre("v.outer.coder.q"));
  std::vector<float> q{1};
  const std::vector<NamedTensor> level{{"w.coder.q", view_of(std::span<float>(q))}};
  EXPECT_THAT(factors_of_new_ranges(level, old), IsEmpty());
}

TEST(RestartedState, NoticesSayWhatWhyAndWhatFollows) {
  EXPECT_THAT(restart_notices({}), IsEmpty());
  EXPECT_THAT(
      restart_notices({2, 0}),
      ElementsAre(tells("low-rank factors of 2", "divided otherwise", "residuals are kept")));
  EXPECT_THAT(restart_notices({0, 5}),
              ElementsAre(tells("EF21 of 5", "divided otherwise", "first averages")));
}

}  // namespace
}  // namespace gradwire::restarted_state_test
