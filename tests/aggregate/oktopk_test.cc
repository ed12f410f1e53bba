// The O(k) sparse all-reduce against a reference that sorts, and its bytes against the bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "aggregate/oktopk_tensor.h"
#include "aggregate/shared_selection.h"
#include "base/philox.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::oktopk_test {
namespace {

using ::testing::ElementsAre;

// Reference: the k largest, lower index first among equals, others 0.
Flat largest(const Flat& x, std::size_t k) {
  std::vector<std::size_t> order(x.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&x](std::size_t a, std::size_t b) { return std::abs(x[a]) > std::abs(x[b]); });
  Flat kept(x.size());
  for (std::size_t i = 0; i < std::min(k, x.size()); ++i) kept[order[i]] = x[order[i]];
  return kept;
}

// Of the sums those k whose magnitudes, cut to 7 bits of mantissa, are largest.
Flat largest_cut(const Flat& sums, std::size_t k) {
  Flat cut = sums;
  for (float& x : cut) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000u);
  const Flat chosen = largest(cut, k);
  Flat kept(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) kept[i] = chosen[i] != 0 ? sums[i] : 0;
  return kept;
}

struct Sizes {
  int ranks;
  std::vector<std::int64_t> elems;
  std::size_t k;
};

Job job_of(const Sizes& sizes, int steps, const std::string& more = "") {
  Job job;
  job.compressor =
      "topk:k=" + std::to_string(sizes.k) + ",combine=oktopk,min_elems=0,dense_1d=false" + more;
  for (std::size_t t = 0; t < sizes.elems.size(); ++t) {
    job.tensors.push_back({"t" + std::to_string(t), Shape::vector(sizes.elems[t])});
  }
  job.ranks = sizes.ranks;
  job.steps = steps;
  return job;
}

// What a step should give of one tensor.
Flat reference(const Job& job, const JobTensor& tensor, int step, std::size_t k) {
  const auto elems = static_cast<std::size_t>(tensor.shape.elems());
  Flat sum(elems);
  for (int r = 0; r < job.ranks; ++r) {
    Flat own(elems);
    for (std::size_t e = 0; e < elems; ++e) {
      own[e] = job.gradient(tensor.name, r, step, static_cast<std::int64_t>(e));
    }
    own = largest(own, k);
    for (std::size_t e = 0; e < elems; ++e) sum[e] += own[e];
  }
  const bool full = 8 * std::min(k, elems) >= 4 * elems;
  if (!full) sum = largest_cut(sum, k);
  for (float& x : sum) x *= static_cast<float>(1.0 / job.ranks);
  return sum;
}

void expect_reference(const Job& job, std::size_t k) {
  const JobOutcome outcome = run_job(job);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.first_difference, -1);
  for (int step = 0; step < job.steps; ++step) {
    Flat wanted;
    for (const JobTensor& tensor : job.tensors) {
      const Flat one = reference(job, tensor, step, k);
      wanted.insert(wanted.end(), one.begin(), one.end());
    }
    ASSERT_EQ(outcome.means[static_cast<std::size_t>(step)], wanted) << "step " << step;
  }
}

TEST(OkTopk, IsTheTopkOfTheSumOfTopks) {
  for (const Sizes& sizes : {Sizes{1, {100}, 5}, Sizes{2, {1, 7, 300}, 3}, Sizes{3, {1000, 5}, 20},
                             Sizes{4, {64, 2000, 64}, 31}, Sizes{7, {500, 501}, 1},
                             Sizes{5, {400}, 199}, Sizes{5, {400}, 200}, Sizes{3, {90}, 1000}}) {
    SCOPED_TRACE(std::to_string(sizes.ranks) + " ranks, k " + std::to_string(sizes.k));
    Job job = job_of(sizes, 3);
    job.gradient = default_gradient;
    expect_reference(job, sizes.k);
    job.bucket_bytes = 1;
    expect_reference(job, sizes.k);
  }
}

// Far fewer pairs than elements, most of them every rank's: sums that depend on their order.
TEST(OkTopk, FewPairsAreAddedUpInRankOrder) {
  for (const int ranks : {2, 3, 5, 6}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    Job job = job_of({ranks, {6000, 900}, 12}, 2);
    job.gradient = [](const std::string& tensor, int rank, int step, std::int64_t e) {
      const float x = default_gradient(tensor, rank, step, e);
      if (e % 500 != 3) return x / 1024;
      return rank % 3 == 0 ? 1e8F + 64 * x : rank % 3 == 1 ? 7 + x : -1e8F;
    };
    expect_reference(job, 12);
  }
}

// Regions stay for 64 steps: gradients that gather in one of them fill it up, and its owner gives
// pairs away.
TEST(OkTopk, CopesWithGradientsThatMoveIntoOneRegion) {
  Job job = job_of({4, {2000}, 100}, 3);
  job.gradient = [](const std::string& tensor, int rank, int step, std::int64_t e) {
    const float x = default_gradient(tensor, rank, step, e);
    return step == 0 || e < 200 ? x : x / 1024;
  };
  expect_reference(job, 100);
}

// Equal magnitudes everywhere: exactly k are kept, the lowest.
TEST(OkTopk, KeepsTheLowestAmongEquals) {
  Job job = job_of({3, {12}, 2}, 1);
  job.gradient = [](const std::string&, int rank, int, std::int64_t e) {
    return e / 4 == rank ? 1.0F : 0.0F;
  };
  const JobOutcome outcome = run_job(job);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  const float third = 1.0F / 3;
  EXPECT_THAT(outcome.means[0], ElementsAre(third, third, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
}

// What owners leave out goes back into the residuals of those who sent it.
TEST(OkTopk, ResidualsKeepWhatEitherChoiceLeftOut) {
  Job job = job_of({2, {4}, 1}, 2, ",ef=ef14");
  const std::vector<Flat> grads{{1, -2, 3, -4}, {2, 2, -2, -2}};
  job.gradient = [&grads](const std::string&, int rank, int, std::int64_t e) {
    return grads[static_cast<std::size_t>(rank)][static_cast<std::size_t>(e)];
  };
  const JobOutcome outcome = run_job(job);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  // Rank 0 sends -4, rank 1 the first of its twos; -4 is kept.
  EXPECT_THAT(outcome.means[0], ElementsAre(0, 0, 0, -2));
  // Rank 0 sends 6 of (2, -4, 6, -4), rank 1 the first of its fours; 6 is kept.
  EXPECT_THAT(outcome.means[1], ElementsAre(0, 0, 3, 0));
  EXPECT_THAT(outcome.state[0].at("t0.error"), ElementsAre(2, -4, 0, -4));
  EXPECT_THAT(outcome.state[1].at("t0.error"), ElementsAre(4, 4, -4, -4));
}

// Li and Hoefler's 6k(n-1)/n words a rank, and what this implementation counts beside them.
TEST(OkTopk, BytesStayBelowTheBoundWhateverTheNumberOfRanks) {
  constexpr std::int64_t kElems = 40000;
  constexpr std::int64_t kMost = 400;
  for (const int ranks : {2, 4, 8, 16}) {
    Job job = job_of({ranks, {kElems}, kMost}, 6);
    const JobOutcome outcome = run_job(job);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    std::int64_t wire = 0;
    for (const AggregateStats& stats : outcome.stats_of_last_step) {
      wire += static_cast<std::int64_t>(stats.wire_bytes);
    }
    const std::int64_t n = ranks;
    const std::int64_t pairs = 6 * kMost * (n - 1) * 4;
    // At most log2 n whole vectors a rank for each of 3 all-reduces of 32 counts and one of a k;
    // two numbers and one to everybody.
    const auto hops = static_cast<std::int64_t>(std::bit_width(static_cast<unsigned>(n)) - 1);
    const std::int64_t counts = n * 2 * hops * (3 * 32 * 4 + 8) + n * (n - 1) * (2 * 4 + 4);
    EXPECT_LE(wire, pairs + counts) << ranks;
    // Gathering would take n - 1 times every rank's pairs; a full ring more still.
    if (ranks == 16) {
      EXPECT_LT(wire, n * (n - 1) * kMost * 8 / 2);
    }
  }
}

// Where pairs would take more than all elements these travel, once to the owners and once back.
TEST(OkTopk, FullTensorsTakeNoMoreThanARingAllReduce) {
  const JobOutcome outcome = run_job(job_of({4, {4000}, 3000}, 3));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  std::uint64_t wire = 0;
  for (const AggregateStats& stats : outcome.stats_of_last_step) wire += stats.wire_bytes;
  const std::uint64_t ring = 2 * 3 * 4000 * 4;
  EXPECT_LE(wire, ring + 4 * 3 * 12 + 4 * 2 * 2 * 8);
}

// A sparse method whose coders nobody gets.
class Closed final : public Compressor {
 public:
  std::string spec() const override { return "closed"; }
  Traits traits() const override { return {.sparse = true}; }
  ErrorBound bound(const Shape&) const override { return {}; }
  std::size_t max_payload_bytes(const Shape&, DType, int, int) const override { return 8; }
  Result<std::unique_ptr<Coder>> open(const Shape&, const Placement&) const override {
    return Status(Code::kInternal, "opened");
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported, "closed");
  }
};

// Counts of pairs, and of sums over ranks, have 32 bits with a sign: more elements in a bucket
// could make them negative, or another number.
TEST(OkTopk, BucketsBeyondItsCountsAreRefused) {
  const auto opened = [](std::int64_t before, std::int64_t elems) {
    Status seen;
    const auto body = [&](std::unique_ptr<Communicator>& communicator) -> Status {
      const ExchangeContext context{*communicator, "ring"};
      static std::byte nowhere{};
      Parameter parameter;
      parameter.name = "w";
      parameter.grad = TensorView(&nowhere, Shape::vector(elems), DType::kF32);
      parameter.compressor = std::make_shared<const Closed>();
      seen = open_oktopk_tensor<float>(context, parameter, before).error();
      return {};
    };
    EXPECT_TRUE(on_ranks(1, body).front().ok());
    return seen;
  };
  constexpr std::int64_t kMost = 2147483647;
  EXPECT_EQ(opened(0, kMost).code(), Code::kInternal);
  EXPECT_EQ(opened(kMost - 10, 10).code(), Code::kInternal);
  EXPECT_THAT(opened(0, kMost + 1), fails(Code::kUnsupported, "oktopk", "2147483648", "gather"));
  EXPECT_THAT(opened(kMost, 5), fails(Code::kUnsupported, "oktopk", "2147483652", "2147483647"));
}

TEST(SharedSelection, FindsTheEdgeWhereverTheListLies) {
  const RandomStream random(5, RandomUse::kTest, 0, 0, 0, 0);
  for (const std::int64_t most : {1, 7, 50, 199, 200, 300}) {
    std::vector<std::uint32_t> keys;
    for (std::uint64_t i = 0; i < 200; ++i) {
      const double x = std::exp(8 * static_cast<double>(random.uniform(i)) - 4);
      keys.push_back(SharedSelection::key(i % 2 == 0 ? x : -x));
    }
    SharedSelection selection(most);
    for (int round = 0; round < SharedSelection::kRounds; ++round) {
      std::vector<std::int32_t> bins(SharedSelection::kBins);
      for (const std::uint32_t key : keys) selection.count(key, bins);
      selection.advance(bins);
    }
    std::vector<std::uint32_t> sorted = keys;
    std::sort(sorted.rbegin(), sorted.rend());
    std::int64_t above = 0;
    std::int64_t edge = 0;
    for (const std::uint32_t key : keys) {
      above += selection.above(key) ? 1 : 0;
      edge += selection.at_edge(key) ? 1 : 0;
      const bool wanted = most >= 200 || key >= sorted[static_cast<std::size_t>(most)];
      EXPECT_TRUE(wanted || !(selection.above(key) || selection.at_edge(key)));
    }
    EXPECT_EQ(above + std::min(edge, selection.room()), std::min<std::int64_t>(most, 200));
  }
}

}  // namespace
}  // namespace gradwire::testing::oktopk_test
