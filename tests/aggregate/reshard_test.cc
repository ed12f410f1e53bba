#include "aggregate/state/reshard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/support/fails.h"

namespace gradwire::reshard_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

using ::testing::ElementsAre;

class Sizes final : public ParameterSizes {
 public:
  std::int64_t elems_of(std::string_view name) const override {
    return name == "w" || name == "v" ? 5 : 0;
  }
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

TEST(Reshard, StoredResidualsAreAveragedByValue) {
  struct Stored {
    std::vector<std::int8_t> codes;
    std::vector<float> scale;
    std::vector<std::uint16_t> halves;
    std::vector<float> h, mean;
    std::vector<NamedTensor> views() {
      return {{"w.error", view_of(std::span<std::int8_t>(codes))},
              {"w.error.scale", view_of(std::span<float>(scale))},
              {"v.error",
               {reinterpret_cast<std::byte*>(halves.data()), Shape::vector(1), DType::kBF16}},
              {"u.ef21.h", view_of(std::span<float>(h))},
              {"u.ef21.mean", view_of(std::span<float>(mean))}};
    }
  };
  // Values (127, -64) and (0, 127 * 3); bfloat16 1 and 2.
  Stored one{{127, -64}, {1}, {0x3f80}, {3, 5}, {7, 7}};
  Stored two{{0, 127}, {3}, {0x4000}, {5, 9}, {7, 7}};
  const std::vector<std::vector<NamedTensor>> old{one.views(), two.views()};
  Stored own{{9, 9}, {9}, {9}, {9, 9}, {9, 9}};
  ASSERT_TRUE(reshard_state(own.views(), old, 0, 3, Sizes()).ok());
  // Averages 63.5 and 158.5 on a grid of 158.5 / 127: 51 steps (50.88) and 127.
  EXPECT_THAT(own.codes, ElementsAre(51, 127));
  EXPECT_THAT(own.scale, ElementsAre(158.5F / 127));
  EXPECT_THAT(own.halves, ElementsAre(0x3fc0));
  EXPECT_THAT(own.h, ElementsAre(4, 7));
  EXPECT_THAT(own.mean, ElementsAre(7, 7));
}

// State of a parameter that was gathered, for one whose sums are sent on: nothing is owed of sums,
// and its owner's average is what all took for it.
TEST(Reshard, WhatWasGatheredOwesNothingOfSums) {
  for (const std::size_t old_ranks : {2U, 3U}) {
    std::vector<State> old(old_ranks, State{{"w.error", {4, 1, 2, 3, 4}},
                                            {"v.ef21.h", {1, 2, 3, 4, 5}},
                                            {"v.ef21.mean", {6, 7, 8, 9, 10}}});
    State own{{"w.error", {9, 9, 9, 9, 9}},     {"w.error2", {9, 9}},
              {"w.error2.scale", {9}},          {"v.ef21.h", {0, 0, 0, 0, 0}},
              {"v.ef21.mean", {0, 0, 0, 0, 0}}, {"v.ef21.average", {9, 9}}};
    const Status status = reshard_state(views(own), views(old), 1, 2, Sizes());
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_THAT(own["w.error"], ElementsAre(4, 1, 2, 3, 4));
    EXPECT_THAT(own["w.error2"], ElementsAre(0, 0));
    EXPECT_THAT(own["w.error2.scale"], ElementsAre(0));
    EXPECT_THAT(own["v.ef21.mean"], ElementsAre(6, 7, 8, 9, 10));
    EXPECT_THAT(own["v.ef21.average"], ElementsAre(9, 10));  // rank 1 of 2 owns elements 3 and 4
  }
}

TEST(Reshard, WhatDoesNotFitIsRefusedByNameAndChangesNothing) {
  const auto refused = [](std::vector<State> old, int size) {
    State own{{"w.error", {9, 9, 9, 9, 9}},
              {"w.error2", {9, 9}},
              {"w.coder.q", {9}},
              {"w.coder.residual_u", {9, 9}}};
    const State before = own;
    const Status status = reshard_state(views(own), views(old), 1, size, Sizes());
    EXPECT_EQ(own, before);
    return status;
  };
  std::vector<State> old = three_ranks();
  old[2].erase("w.error2");
  EXPECT_THAT(refused(old, 2), fails(kInvalid, "w.error2", "rank 2", "missing"));
  old = three_ranks();
  old[0]["w.error"].pop_back();
  EXPECT_THAT(refused(old, 2), fails(kInvalid, "w.error", "rank 0", "4 elements"));
  old = three_ranks();
  old[1]["v.error"] = {1};
  EXPECT_THAT(refused(old, 3), fails(kInvalid, "v.error", "parameter"));
  EXPECT_THAT(refused({}, 3), fails(kInvalid, "no rank"));
}

}  // namespace
}  // namespace gradwire::reshard_test
