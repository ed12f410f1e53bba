// Several ranks that train on one device, through an aggregator over messages: replicas stay equal,
// losses are the host's, and a checkpoint made in one place goes on in the other. On the device
// that the host plays streams run later than they are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/gpu/messages/rank_training.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::training_ranks_test {
namespace {

using gpu::distance;
using gpu::expect_equal_replicas;
using gpu::kDevice;
using gpu::kHalf;
using gpu::kMlp;
using gpu::kResnet8;
using gpu::kSteps;
using gpu::RankJob;
using gpu::RankOutcome;
using gpu::train_ranks;

TEST(RanksThere, TrainAsOnTheHost) {
  for (const std::size_t family : {kMlp, kResnet8}) {
    const RankJob job{.family = family, .ranks = family == kMlp ? 4 : 2};
    const auto host = train_ranks(job, {});
    const auto there = train_ranks(job, kDevice);
    expect_equal_replicas(host);
    expect_equal_replicas(there);
    if (HasFatalFailure()) return;
    EXPECT_LE(distance(host[0].parameters, there[0].parameters), 1e-4) << family;
    for (std::size_t step = 0; step < host[0].losses.size(); ++step) {
      EXPECT_NEAR(there[0].losses[step], host[0].losses[step], 1e-4 * host[0].losses[step]);
    }
  }
}

// What is rounded may fall to the other side of a half: close, not equal.
TEST(RanksThere, TrainCompressedAboutAsOnTheHost) {
  for (const std::string spec : {"qsgd:bits=4,combine=gather", "topk:ratio=0.05,ef=ef14",
                                 "signsgd:ef=ef14,combine=gather", "cast:bf16", "atomo:budget=2"}) {
    const RankJob job{.compressor = spec};
    const auto host = train_ranks(job, {});
    const auto there = train_ranks(job, kDevice);
    expect_equal_replicas(host);
    expect_equal_replicas(there);
    if (HasFatalFailure()) return;
    EXPECT_LE(distance(host[0].parameters, there[0].parameters), 1e-2) << spec;
    EXPECT_NEAR(there[0].losses.back(), host[0].losses.back(), 1e-2 * host[0].losses.back())
        << spec;
  }
}

TEST(RanksThere, MeasureTheirAveragesAsOnTheHost) {
  RankJob job{.compressor = "topk:ratio=0.05,ef=ef14"};
  const auto unmeasured = train_ranks(job, kDevice);
  job.measure_every = 3;
  const auto host = train_ranks(job, {});
  const auto there = train_ranks(job, kDevice);
  expect_equal_replicas(unmeasured);
  expect_equal_replicas(host);
  expect_equal_replicas(there);
  if (HasFatalFailure()) return;
  EXPECT_EQ(there[0].parameters, unmeasured[0].parameters);
  ASSERT_EQ(there[0].errors.size(), 3u);  // steps 0, 3 and 6
  ASSERT_EQ(host[0].errors.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const GradientErrors& want = host[0].errors[i];
    for (const RankOutcome& rank : there) {
      const GradientErrors& got = rank.errors[i];
      EXPECT_NEAR(got.nmse, want.nmse, 1e-2 * want.nmse);
      EXPECT_NEAR(got.exact_norm, want.exact_norm, 1e-2 * want.exact_norm);
      ASSERT_TRUE(got.residual_norm.has_value() && want.residual_norm.has_value());
      EXPECT_NEAR(*got.residual_norm, *want.residual_norm, 1e-2 * *want.residual_norm);
    }
  }
  EXPECT_GT(host[0].errors[0].nmse, 0.01);  // a twentieth of the elements does not say all
}

// Roundings to 16 bits may fall to the other side, too, and so may a mean's.
TEST(RanksThere, TrainInSixteenBitsAboutAsOnTheHost) {
  for (const RankJob& job : {RankJob{.precision = Precision::kBF16},
                             RankJob{.optimizer = "adamw", .precision = Precision::kF16},
                             RankJob{.compressor = "qsgd:bits=8,ef=ef14",
                             .precision = Precision::kF16,
                             .main_gradients = false},
                             RankJob{.family = kResnet8, .precision = Precision::kBF16}}) {
    const auto host = train_ranks(job, {});
    const auto there = train_ranks(job, kDevice);
    expect_equal_replicas(host);
    expect_equal_replicas(there);
    if (HasFatalFailure()) return;
    EXPECT_LE(distance(host[0].parameters, there[0].parameters), 1e-3) << to_string(job.precision);
    EXPECT_NEAR(there[0].losses.back(), host[0].losses.back(), 1e-2 * host[0].losses.back());
  }
}

TEST(RanksThere, RefuseWhatTheAggregatorDoesNotServe) {
  const auto there = train_ranks({.compressor = "topk:ratio=0.05,index=gaps"}, kDevice);
  for (const RankOutcome& rank : there) EXPECT_EQ(rank.code, Code::kUnsupported) << rank.fault;
}

struct Saved {
  const char* optimizer;
  Precision precision = Precision::kF32;
  double tolerance = 1e-4;
};

class Checkpoints : public ::testing::TestWithParam<Saved> {};

TEST_P(Checkpoints, MadeThereGoOnThereBitForBitAndOnTheHostAndBack) {
  const TemporaryFolder from_device;
  const TemporaryFolder from_host;
  const Saved& saved = GetParam();
  const RankJob plain{
      .family = kResnet8, .optimizer = saved.optimizer, .precision = saved.precision};
  RankJob saved_there = plain;
  saved_there.save_to = from_device.path();
  RankJob saved_here = plain;
  saved_here.save_to = from_host.path();
  const auto there = train_ranks(saved_there, kDevice);
  const auto host = train_ranks(saved_here, {});
  expect_equal_replicas(there);
  expect_equal_replicas(host);
  if (HasFatalFailure()) return;
  RankJob resumed = plain;
  resumed.resume_from = from_device.path();
  const auto again = train_ranks(resumed, kDevice);
  expect_equal_replicas(again);
  if (HasFatalFailure()) return;
  EXPECT_EQ(again[0].parameters, there[0].parameters);
  EXPECT_EQ(again[0].buffers, there[0].buffers);
  const auto on_host = train_ranks(resumed, {});
  expect_equal_replicas(on_host);
  if (HasFatalFailure()) return;
  EXPECT_LE(distance(there[0].parameters, on_host[0].parameters), saved.tolerance);
  resumed.resume_from = from_host.path();
  const auto back = train_ranks(resumed, kDevice);
  expect_equal_replicas(back);
  if (HasFatalFailure()) return;
  EXPECT_LE(distance(host[0].parameters, back[0].parameters), saved.tolerance);
  EXPECT_EQ(back[0].losses.size(), static_cast<std::size_t>(kSteps - kHalf));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Checkpoints,
                         ::testing::Values(Saved{"sgd"}, Saved{"adamw"}, Saved{"lamb"},
                                           Saved{"nesterov", Precision::kF16, 1e-3}),
                         [](const auto& info) { return std::string(info.param.optimizer); });

}  // namespace
}  // namespace gradwire::training_ranks_test
