#include "aggregate/reshard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/elements.h"

namespace gradwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Sizes final : public ParameterSizes {
 public:
  std::int64_t elems_of(std::string_view name) const override { return name == "w" ? 5 : 0; }
};

using State = std::map<std::string, std::vector<float>>;

std::vector<NamedTensor> views(State& state) {
  std::vector<NamedTensor> all;
  for (auto& [name, values] : state) all.push_back({name, view_of(std::span<float>(values))});
  return all;
}

std::vector<std::vector<NamedTensor>> views(std::vector<State>& states) {
  std::vector<std::vector<NamedTensor>> all;
  for (State& state : states) all.push_back(views(state));
  return all;
}

// Three ranks of a parameter w of 5 elements: chunks of 2, 2 and 1.
std::vector<State> three_ranks() {
  return {{{"w.error", {0, 1, 2, 3, 4}},
           {"w.error2", {10, 20}},
           {"w.coder.q", {7}},
           {"w.coder.residual_u", {1, 8}}},
          {{"w.error", {3, 1, 2, 3, 7}},
           {"w.error2", {30, 40}},
           {"w.coder.q", {7}},
           {"w.coder.residual_u", {2, 0}}},
          {{"w.error", {6, 1, 2, 3, 1}},
           {"w.error2", {50}},
           {"w.coder.q", {7}},
           {"w.coder.residual_u", {6, 1}}}};
}

TEST(Reshard, ThreeRanksToTwoKeepsTheAverageResidual) {
  std::vector<State> old = three_ranks();
  State own{{"w.error", {9, 9, 9, 9, 9}},
            {"w.error2", {9, 9}},
            {"w.coder.q", {9}},
            {"w.coder.residual_u", {9, 9}}};
  // Two ranks: chunks of 3 and 2; rank 1 owns elements 3 and 4.
  ASSERT_TRUE(reshard_state(views(own), views(old), 1, 2, Sizes()).ok());
  EXPECT_THAT(own["w.error"], ElementsAre(3, 1, 2, 3, 4));
  EXPECT_THAT(own["w.error2"], ElementsAre(40 * 2.0F / 3, 50 * 2.0F / 3));
  EXPECT_THAT(own["w.coder.q"], ElementsAre(7));
  EXPECT_THAT(own["w.coder.residual_u"], ElementsAre(3, 3));
}

TEST(Reshard, TheSameNumberOfRanksIsBitForBit) {
  std::vector<State> old = three_ranks();
  State own{{"w.error", {9, 9, 9, 9, 9}},
            {"w.error2", {9, 9}},
            {"w.coder.q", {9}},
            {"w.coder.residual_u", {9, 9}}};
  ASSERT_TRUE(reshard_state(views(own), views(old), 1, 3, Sizes()).ok());
  EXPECT_EQ(own, old[1]);
}

TEST(Reshard, WhatDoesNotFitIsRefusedByNameAndChangesNothing) {
  const auto refused = [](std::vector<State> old, int size) {
    State own{{"w.error", {9, 9, 9, 9, 9}},
              {"w.error2", {9, 9}},
              {"w.coder.q", {9}},
              {"w.coder.residual_u", {9, 9}}};
    const State before = own;
    const Status status = reshard_state(views(own), views(old), 1, size, Sizes());
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(own, before);
    return std::string(status.message());
  };
  std::vector<State> old = three_ranks();
  old[2].erase("w.error2");
  EXPECT_THAT(refused(old, 2), HasSubstr("state 'w.error2' of old rank 2 is missing"));
  old = three_ranks();
  old[0]["w.error"].pop_back();
  EXPECT_THAT(refused(old, 2), HasSubstr("state 'w.error' of old rank 0: 4 elements"));
  old = three_ranks();
  old[1]["v.error"] = {1};
  EXPECT_THAT(refused(old, 3), HasSubstr("state 'v.error' belongs to no parameter"));
  EXPECT_THAT(refused({}, 3), HasSubstr("no rank"));
}

}  // namespace
}  // namespace gradwire
