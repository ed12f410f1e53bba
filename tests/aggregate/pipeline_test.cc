#include "aggregate/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fails.h"

namespace gradwire::pipeline_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LaunchOrder, ByHand) {
  EXPECT_THAT(launch_order({}, 2), IsEmpty());
  EXPECT_THAT(launch_order(std::vector<int>{1, 1, 1}, 2),
              ElementsAre(Launch{0, 0}, Launch{1, 0}, Launch{2, 0}));
  EXPECT_THAT(launch_order(std::vector<int>{1, 2, 1}, 2),
              ElementsAre(Launch{0, 0}, Launch{1, 0}, Launch{2, 0}, Launch{1, 1}));
  EXPECT_THAT(launch_order(std::vector<int>{2, 2, 2}, 2),
              ElementsAre(Launch{0, 0}, Launch{1, 0}, Launch{0, 1}, Launch{1, 1}, Launch{2, 0},
                          Launch{2, 1}));
  EXPECT_THAT(launch_order(std::vector<int>{2, 2}, 1),
              ElementsAre(Launch{0, 0}, Launch{0, 1}, Launch{1, 0}, Launch{1, 1}));
}

TEST(LaunchOrder, EveryPhaseOnceAndInOrder) {
  const std::vector<int> phases{3, 1, 2, 2, 1, 3};
  for (const int depth : {1, 2, 3, 10}) {
    std::vector<int> next(phases.size(), 0);
    int begun = 0;
    for (const Launch& launch : launch_order(phases, depth)) {
      if (launch.phase == 0) {
        EXPECT_EQ(launch.bucket, begun++);
      }
      EXPECT_EQ(launch.phase, next[static_cast<std::size_t>(launch.bucket)]++);
    }
    EXPECT_EQ(next, phases) << depth;
  }
}

// Buckets that send nothing and write down what happens to them.
class Scribe final : public BucketExchange {
 public:
  Scribe(int number, int phases, std::vector<std::string>& log)
      : number_(number), phases_(phases), log_(log) {}
  int phases() const override { return phases_; }
  Result<std::size_t> encode(int phase, std::uint64_t) override {
    note("encode", phase);
    if (fail_encode) return Status(Code::kInvalidArgument, "no");
    return std::size_t{10};
  }
  Result<std::optional<Work>> issue(int phase) override {
    note("issued", phase);
    return std::optional<Work>();
  }
  Status absorb(int phase, std::uint64_t) override {
    note("absorb", phase);
    return {};
  }
  bool fail_encode = false;

 private:
  void note(const std::string& what, int phase) {
    log_.push_back(what + " " + std::to_string(number_) + "." + std::to_string(phase));
  }
  int number_;
  int phases_;
  std::vector<std::string>& log_;
};

// Gradients of bucket `late` are not there until somebody waits for them.
class Source final : public StepSource {
 public:
  Source(int late, std::vector<std::string>& log) : late_(late), log_(log) {}
  bool is_ready(int bucket) override { return bucket != late_; }
  Status wait_ready(int bucket) override {
    if (bucket == late_) log_.push_back("wait " + std::to_string(bucket));
    return {};
  }
  Status wait(Work&) override { return {}; }

 private:
  int late_;
  std::vector<std::string>& log_;
};

TEST(RunStep, EncodesTheNextBucketWhileTheOneBeforeItFlies) {
  std::vector<std::string> log;
  Scribe a(0, 1, log);
  Scribe b(1, 1, log);
  std::vector<BucketExchange*> buckets{&a, &b};
  Source source(-1, log);
  StepCost cost;
  ASSERT_TRUE(run_step(buckets, 3, source, cost).ok());
  EXPECT_THAT(log, ElementsAre("encode 0.0", "issued 0.0", "encode 1.0", "issued 1.0", "absorb 0.0",
                               "absorb 1.0"));
  EXPECT_EQ(cost.payload_bytes, 20u);
}

TEST(RunStep, AbsorbsWhatFliesWhileGradientsAreLate) {
  std::vector<std::string> log;
  Scribe a(0, 1, log);
  Scribe b(1, 1, log);
  std::vector<BucketExchange*> buckets{&a, &b};
  Source source(1, log);
  StepCost cost;
  ASSERT_TRUE(run_step(buckets, 0, source, cost).ok());
  EXPECT_THAT(log, ElementsAre("encode 0.0", "issued 0.0", "absorb 0.0", "wait 1", "encode 1.0",
                               "issued 1.0", "absorb 1.0"));
}

TEST(RunStep, ErrorsNameStepBucketAndPhase) {
  std::vector<std::string> log;
  Scribe a(0, 1, log);
  Scribe b(1, 1, log);
  b.fail_encode = true;
  std::vector<BucketExchange*> buckets{&a, &b};
  Source source(-1, log);
  StepCost cost;
  const Status status = run_step(buckets, 17, source, cost);
  EXPECT_THAT(status, fails(kInvalid, "step 17", "bucket 1", "phase 0", "no"));
}

}  // namespace
}  // namespace gradwire::pipeline_test
