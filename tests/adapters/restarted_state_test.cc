// State of compression that starts anew on other replicas: which entries, and what is said of them.
#include "adapters/trainer/restarted_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/support/names.h"

namespace gradwire::restarted_state_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using State = std::map<std::string, std::vector<float>>;

std::vector<NamedTensor> views(State& state) {
  std::vector<NamedTensor> all;
  for (auto& [name, values] : state) all.push_back({name, view_of(std::span<float>(values))});
  return all;
}

LoadedState loaded(State& state) {
  LoadedState old;
  old.tensors = views(state);
  return old;
}

TEST(RestartedState, FactorsAreThoseOfARunThatBeginsAndShiftsAreZero) {
  State own{{"w.coder.q", {1, 2}},    {"w.coder.p", {3}},         {"w.error", {0, 0}},
            {"reduce/v.ef21.h", {0}}, {"reduce/v.ef21.v", {0}},   {"reduce/v.ef21.mean", {0}},
            {"reduce/u.ef21.h", {0}}, {"gather/v.ef21.mean", {9}}};
  State old{{"w.coder.q", {7, 8}},      {"w.coder.p", {9}},
            {"w.error", {5, 6}},        {"reduce/v.ef21.h", {4}},
            {"reduce/v.ef21.v", {3}},   {"reduce/v.ef21.mean", {2}},
            {"reduce/u.ef21.h", {1}},   {"reduce/v.ef21.average", {6, 7}},
            {"gather/v.ef21.mean", {8}}};
  LoadedState state = loaded(old);
  const auto restarted = restart_state(views(own), state);
  ASSERT_TRUE(restarted.has_value());
  EXPECT_EQ(restarted.value().factors, 1);
  EXPECT_EQ(restarted.value().shifts, 2);
  const State wanted{{"w.coder.q", {1, 2}},      {"w.coder.p", {3}},
                     {"w.error", {5, 6}},        {"reduce/v.ef21.h", {0}},
                     {"reduce/v.ef21.v", {3}},   {"reduce/v.ef21.mean", {0}},
                     {"reduce/u.ef21.h", {0}},   {"reduce/v.ef21.average", {0, 0}},
                     {"gather/v.ef21.mean", {8}}};
  EXPECT_EQ(old, wanted);
}

// Between nodes owners are others now: their factors are the business of who has some.
TEST(RestartedState, FactorsThatAreNotHereAreLeftAlone) {
  State own{{"w.error", {0, 0}}};
  State old{{"w.outer.coder.q", {7, 8}}};
  LoadedState state = loaded(old);
  EXPECT_TRUE(restart_state(views(own), state).has_value());
  EXPECT_THAT(old["w.outer.coder.q"], ElementsAre(7, 8));
}

TEST(RestartedState, FactorsOfAnotherShapeBecomeThoseThatAreHere) {
  State own{{"w.outer.coder.q", {1, 2}}};
  State old{{"w.outer.coder.q", {7}}};
  LoadedState state = loaded(old);
  ASSERT_TRUE(restart_state(views(own), state).has_value());
  EXPECT_THAT(elements<float>(ConstTensorView(state.tensors[0].tensor)), ElementsAre(1, 2));
}

TEST(RestartedState, EntriesOfAParameterCountOnce) {
  const std::vector<std::string> names{"w.coder.q", "w.coder.p",         "v.coder.q",
                                       "w.error2",  "w.ef21.h",          "reduce/u.ef21.mean",
                                       "w.ef21.v",  "gather/w.ef21.mean"};
  const RestartedState restarted = restarted_among(names);
  EXPECT_EQ(restarted.factors, 2);
  EXPECT_EQ(restarted.shifts, 2);
}

TEST(RestartedState, NoticesSayWhatWhyAndWhatFollows) {
  EXPECT_THAT(restart_notices({}, "four"), IsEmpty());
  EXPECT_THAT(restart_notices({2, 0}, "four wrote it"),
              ElementsAre(tells("low-rank factors of 2", "four wrote it", "residuals are kept")));
  EXPECT_THAT(restart_notices({0, 5}, "four wrote it"),
              ElementsAre(tells("EF21 of 5", "four wrote it", "first averages")));
}

}  // namespace
}  // namespace gradwire::restarted_state_test
