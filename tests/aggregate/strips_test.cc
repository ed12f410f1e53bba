// A large parameter travels in strips: no bit of its mean, of what is left over and of its payload
// depends on how many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "aggregate/exchange.h"
#include "aggregate/plan/plan.h"
#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::strips_test {
namespace {

constexpr std::int64_t kElems = 30'011;

Job job_of(const std::string& compressor, int ranks, std::int64_t bucket_bytes) {
  Job job;
  job.compressor = compressor;
  job.tensors = {{"before", Shape::matrix(20, 40)},
                 {"large", Shape::matrix(1, kElems)},
                 {"after", Shape::matrix(30, 10)}};
  job.bucket_bytes = bucket_bytes;
  job.ranks = ranks;
  job.steps = 3;
  return job;
}

class Strips : public ::testing::TestWithParam<std::string> {};

TEST_P(Strips, ChangeNoBit) {
  for (const int ranks : {1, 2, 3, 5}) {
    // Of "large" a bucket of its own, whole, and in 2, 7 and 16 strips.
    const JobOutcome whole = run_job(job_of(GetParam(), ranks, kElems * 4 - 1));
    ASSERT_TRUE(whole.status.ok()) << whole.status.message();
    for (const std::int64_t strips : {2, 7, 16}) {
      const JobOutcome outcome = run_job(job_of(GetParam(), ranks, kElems * 4 / strips));
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      EXPECT_EQ(outcome.first_difference, -1);
      EXPECT_TRUE(outcome.means == whole.means) << ranks << " ranks, " << strips << " strips";
      EXPECT_TRUE(outcome.state == whole.state) << ranks << " ranks, " << strips << " strips";
      EXPECT_EQ(outcome.stats[0].payload_bytes, whole.stats[0].payload_bytes);
    }
  }
}

// With and without error feedback, formats of one section and of several, sums that are folded and
// such that are not; kinds of feedback and votes that go in one strip whatever is asked.
INSTANTIATE_TEST_SUITE_P(
    Methods, Strips,
    ::testing::Values(
        "qsgd:bits=4,combine=sra,min_elems=0", "qsgd:bits=4,combine=sra,ef=ef14,min_elems=0",
        "qsgd:bits=8,bucket=128,combine=sra,ef=ef14,min_elems=0",
        "minmax:bits=4,combine=sra,ef=ef14,min_elems=0", "signsgd:ef=ef14,combine=sra,min_elems=0",
        "signsgd:bucket=tensor,ef=ef14,combine=sra,min_elems=0", "cast:bf16,ef=ef14,min_elems=0",
        "fp8:ef=ef14,combine=sra,min_elems=0", "natural:combine=sra,min_elems=0",
        "mx:combine=sra,ef=ef14,min_elems=0", "qsgd:bits=4,combine=sra,ef=loco,min_elems=0",
        "qsgd:bits=4,combine=sra,ef=ef21,min_elems=0",
        "signsgd:vote=majority,combine=sra,min_elems=0",
        "qsgd:bits=8@0/3@1/5@2,bucket=64,combine=sra,min_elems=0",
        "absmax:bits=2@0/8@2,combine=sra,ef=ef14,min_elems=0",
        "large=qsgd:bits=4,combine=sra,ef=ef14;*=none"),
    [](const ::testing::TestParamInfo<std::string>& info) {
      return "spec" + std::to_string(info.index);
    });

// Of one parameter of 40,000 bytes on one rank.
std::size_t strips_of(const std::string& compressor, std::int64_t strip_bytes) {
  AggregatorOptions options;
  options.compressor = compressor;
  std::vector<float> gradient(10'000);
  auto plan = read_plan(Registry::builtin(), options);
  if (!plan.has_value()) return 0;
  const TensorView view = view_of(std::span(gradient));
  const auto parameter = plan_parameter(plan.value(), options, "w",
                                        {view.data(), Shape::matrix(100, 100), DType::kF32});
  std::size_t count = 0;
  const auto body = [&](std::unique_ptr<Communicator>& communicator) -> Status {
    ExchangeContext context{*communicator, "ring"};
    context.strip_bytes = strip_bytes;
    GW_ASSIGN(const Exchanges made,
              make_exchanges(context, parameter.value().path, {&parameter.value()}));
    count = made.size();
    return {};
  };
  return parameter.has_value() && on_ranks(1, body).front().ok() ? count : 0;
}

TEST(StripsOfAParameter, TheirNumber) {
  const std::string plain = "qsgd:bits=4,combine=sra,min_elems=0";
  EXPECT_EQ(strips_of(plain, 0), 1U);
  EXPECT_EQ(strips_of(plain, 40'000), 1U);
  EXPECT_EQ(strips_of(plain, 20'001), 1U);
  EXPECT_EQ(strips_of(plain, 20'000), 2U);
  EXPECT_EQ(strips_of(plain, 10'000), 4U);
  EXPECT_EQ(strips_of(plain, 1), 16U);  // at most
  EXPECT_EQ(strips_of("qsgd:bits=4,combine=sra,ef=ef14,min_elems=0", 10'000), 4U);
}

TEST(StripsOfAParameter, SomeGoWhole) {
  for (const char* whole :
       {"qsgd:bits=4,combine=sra,ef=loco,min_elems=0",
        "qsgd:bits=4,combine=sra,ef=ef21,min_elems=0",
        "signsgd:vote=majority,combine=sra,min_elems=0", "qsgd:bits=4,combine=gather,min_elems=0",
        "topk:ratio=0.1,min_elems=0", "none"}) {
    EXPECT_EQ(strips_of(whole, 10'000), 1U) << whole;
  }
}

// An error of a strip names the parameter, and no rank waits.
TEST(StripsOfAParameter, ABadGradientEndsTheStep) {
  Job job = job_of("qsgd:bits=4,combine=sra,ef=ef14,min_elems=0", 2, kElems / 2);
  job.gradient = [](const std::string& tensor, int, int, std::int64_t e) {
    return tensor == "large" && e == kElems - 2 ? HUGE_VALF : 1.0F;
  };
  const JobOutcome outcome = run_job(job);
  // Every rank has such a gradient. The first to reach the strip finds it; another may first hear
  // that this one has given up.
  EXPECT_THAT(outcome.statuses, ::testing::Contains(fails(Code::kInvalidArgument, "large")));
  for (const Status& status : outcome.statuses) EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace gradwire::testing::strips_test
