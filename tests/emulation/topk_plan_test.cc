// Whether samples are used well: a bound that misleads costs passes over the whole tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "compress/topk/topk_selection.h"

namespace gradwire::topk_plan_test {
namespace {

// How many of `draws` samples of a tensor without ties mislead.
int misled(std::size_t k, std::int64_t elems, int draws) {
  const cuda::TopkPlan plan = cuda::TopkPlan::of(k, elems);
  EXPECT_GT(plan.rank, 0u);
  std::mt19937_64 random(7);
  std::uniform_int_distribution<std::int64_t> place(0, elems - 1);
  int bad = 0;
  for (int draw = 0; draw < draws; ++draw) {
    // Of each sampled element how many are larger.
    std::vector<std::int64_t> larger(cuda::TopkSample::kSamples);
    std::ranges::generate(larger, [&] { return place(random); });
    std::ranges::nth_element(larger, larger.begin() + plan.rank - 1);
    const std::int64_t reach = larger[plan.rank - 1] + 1;
    bad += reach < static_cast<std::int64_t>(k) || reach > static_cast<std::int64_t>(plan.room);
  }
  return bad;
}

TEST(TopkPlan, SamplesSeldomMisleadHoweverFewAreChosen) {
  constexpr std::int64_t kElems = 1 << 24;
  for (const std::size_t k : {1, 30, 1000, 2048, 16777, 167772, 1677721}) {
    EXPECT_LE(misled(k, kElems, 400), 2) << "k " << k;
  }
}

TEST(TopkPlan, CandidatesAreFew) {
  constexpr std::int64_t kElems = 1 << 24;
  EXPECT_LE(cuda::TopkPlan::of(1, kElems).room, kElems / 400);
  EXPECT_LE(cuda::TopkPlan::of(kElems / 1000, kElems).room, 7 * kElems / 1000);
  EXPECT_LE(cuda::TopkPlan::of(kElems / 100, kElems).room, 2.5 * kElems / 100);
}

}  // namespace
}  // namespace gradwire::topk_plan_test
