// What a program may know of a step before it ends: which gradients hold their mean already.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/elements.h"
#include "gradwire/aggregator.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::arrived_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

constexpr int kRanks = 3;
constexpr int kTensors = 6;
constexpr std::int64_t kElems = 1024;

// Tensor t of rank r is r + t everywhere: the mean is t + 1, and exact under every method here.
struct Gradients {
  std::vector<std::vector<float>> values;
  std::unique_ptr<Aggregator> aggregator;

  Status open(Communicator& communicator, const AggregatorOptions& options) {
    GW_ASSIGN(aggregator, Aggregator::create(communicator, Registry::builtin(), options));
    values.assign(kTensors, std::vector<float>(kElems));
    for (int t = 0; t < kTensors; ++t) {
      GW_TRY(aggregator->add("t" + std::to_string(t), view_of(std::span(values[t]))));
    }
    return {};
  }
  void fill(int rank) {
    for (int t = 0; t < kTensors; ++t) values[t].assign(kElems, static_cast<float>(rank + t));
  }
  bool has_mean(int t) const {
    for (const float value : values[t]) {
      if (value != static_cast<float>(t + 1)) return false;
    }
    return true;
  }
};

// Two tensors a bucket.
AggregatorOptions options_of(const std::string& compressor) {
  AggregatorOptions options;
  options.compressor = compressor;
  options.bucket_bytes = 2 * kElems * static_cast<std::int64_t>(sizeof(float));
  options.algorithm = "canonical";
  return options;
}

Status expect(bool true_thing, const std::string& what) {
  return true_thing ? Status() : Status(Code::kInternal, what);
}

// Backward from the last tensor on, each older one waited for as far as it can be.
Status one_step(Gradients& gradients, int rank, int lag) {
  gradients.fill(rank);
  for (int t = kTensors; t-- > 0;) {
    GW_TRY(gradients.aggregator->ready(t));
    const int older = t + lag;
    if (older >= kTensors) continue;
    GW_ASSIGN(const bool there, gradients.aggregator->arrived(older, true));
    GW_TRY(expect(there, "tensor " + std::to_string(older) + " did not arrive"));
    GW_TRY(expect(gradients.has_mean(older), "no mean in tensor " + std::to_string(older)));
  }
  GW_TRY(gradients.aggregator->finish());
  for (int t = 0; t < kTensors; ++t) GW_TRY(expect(gradients.has_mean(t), "no mean at the end"));
  return {};
}

void expect_ok(const std::vector<Status>& outcomes) {
  for (const Status& status : outcomes) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Arrived, DenseBucketsArriveWhileOthersAreToCome) {
  expect_ok(on_ranks(kRanks, [](std::unique_ptr<Communicator>& communicator) -> Status {
    Gradients gradients;
    GW_TRY(gradients.open(*communicator, options_of("none")));
    for (int step = 0; step < 3; ++step) GW_TRY(one_step(gradients, communicator->rank(), 2));
    return {};
  }));
}

// Between its two hops the next bucket goes out: one bucket later.
TEST(Arrived, TwoHopsTakeTheNextBucketToo) {
  expect_ok(on_ranks(kRanks, [](std::unique_ptr<Communicator>& communicator) -> Status {
    Gradients gradients;
    GW_TRY(gradients.open(*communicator,
                          options_of("cast:bf16,combine=sra,min_elems=0,dense_1d=false")));
    for (int step = 0; step < 3; ++step) GW_TRY(one_step(gradients, communicator->rank(), 4));
    return {};
  }));
}

TEST(Arrived, WaitingForWhatCannotComeYetIsFalse) {
  for (const std::string compressor :
       {"none", "cast:bf16,combine=sra,min_elems=0,dense_1d=false"}) {
    expect_ok(on_ranks(kRanks, [&](std::unique_ptr<Communicator>& communicator) -> Status {
      Gradients gradients;
      GW_TRY(gradients.open(*communicator, options_of(compressor)));
      gradients.fill(communicator->rank());
      GW_TRY(gradients.aggregator->ready(kTensors - 1));
      GW_ASSIGN(const bool early, gradients.aggregator->arrived(kTensors - 1, true));
      GW_TRY(expect(!early, "half a bucket arrived"));
      for (int t = kTensors - 1; t-- > 0;) GW_TRY(gradients.aggregator->ready(t));
      GW_ASSIGN(const bool last, gradients.aggregator->arrived(0, true));
      GW_TRY(expect(last && gradients.has_mean(0), "the last bucket did not arrive"));
      return gradients.aggregator->finish();
    }));
  }
}

TEST(Arrived, IsOfReadyGradientsOfThisStep) {
  expect_ok(on_ranks(kRanks, [](std::unique_ptr<Communicator>& communicator) -> Status {
    Gradients gradients;
    GW_TRY(gradients.open(*communicator, options_of("none")));
    const auto before = gradients.aggregator->arrived(0, true);
    GW_TRY(expect(!before.has_value(), "asked before it was ready"));
    EXPECT_THAT(before.error(), fails(kInvalid, "t0", "before"));
    GW_TRY(one_step(gradients, communicator->rank(), 2));
    const auto after = gradients.aggregator->arrived(0, false);
    GW_TRY(expect(!after.has_value(), "asked after the step"));
    const auto beyond = gradients.aggregator->arrived(kTensors, false);
    EXPECT_THAT(beyond.error(), fails(kInvalid, "6", "0", "5"));
    return {};
  }));
}

}  // namespace
}  // namespace gradwire::testing::arrived_test
