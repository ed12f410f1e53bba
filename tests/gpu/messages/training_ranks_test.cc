// Several ranks that train on the device that the host plays, through an aggregator over messages:
// replicas stay equal, losses are the host's, and a checkpoint made in one place goes on in the
// other. Streams run later than they are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "adapters/trainer/training_checkpoint.h"
#include "device/cuda/stream.h"
#include "tests/emulation/emulated_device.h"
#include "tests/gpu/small_problems.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

constexpr Device kDevice{MemorySpace::kCuda, 0};
constexpr std::int64_t kSteps = 8;
constexpr std::int64_t kHalf = 4;

struct RankJob {
  std::size_t family = 0;
  std::string compressor = "none";
  int ranks = 2;
  std::string optimizer = "sgd";
  Precision precision = Precision::kF32;
  bool main_gradients = true;
  std::string resume_from = {};
  std::string save_to = {};
};

struct RankOutcome {
  std::string fault;
  Code code = Code::kOk;
  std::vector<double> losses;
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<float>> buffers;
};

TrainingCheckpointOptions files_in(const std::string& folder) {
  TrainingCheckpointOptions options;
  options.files.folder = folder;
  options.files.seconds = 30;
  options.batch = 8;
  options.seed = 3;
  return options;
}

Status train_rank(Communicator& world, const gpu::SmallProblem& problem, const RankJob& job,
                  Device device, RankOutcome& outcome) {
  GW_ASSIGN(const cuda::OwnedStream stream, cuda::OwnedStream::create(kDevice));
  TrainingOptions options;
  options.batch = 8;
  options.rank = world.rank();
  options.ranks = world.size();
  options.steps = kSteps;
  options.lr = 0.02;
  options.seed = 3;
  options.optimizer.name = job.optimizer;
  options.precision = job.precision;
  options.main_gradients = job.main_gradients;
  if (job.precision == Precision::kF16) {
    GW_ASSIGN(options.loss_scale, LossScaleOptions::parse("dynamic"));
    options.loss_scale.initial = 0x1p22;  // some steps overflow
  }
  if (device.space == MemorySpace::kCuda) options.places.device = MemoryArena(stream.stream());
  GW_ASSIGN(Trainer trainer, Trainer::create(problem.model, problem.data, options));
  DataParallelOptions parallel;
  parallel.aggregator.compressor = job.compressor;
  parallel.aggregator.algorithm = "canonical";
  parallel.aggregator.seed = 3;
  parallel.check_every = 1;
  const std::vector<NamedTensor> gradients = trainer.gradients();
  GW_ASSIGN(const auto hook, DataParallelHook::create(world, Registry::builtin(), parallel,
                                                      trainer.parameters(), gradients));
  if (!job.resume_from.empty()) {
    TrainingCheckpoint old(world, trainer, *hook, files_in(job.resume_from));
    GW_ASSIGN(const auto from, old.resume());
    EXPECT_TRUE(from.has_value() && from->step == kHalf);
  }
  GW_TRY(hook->start(ReplicaStart::kCompare));
  TrainingCheckpoint checkpoint(world, trainer, *hook, files_in(job.save_to));
  GW_TRY(trainer
             .run(*hook,
                  [&](const StepReport& report) {
                    outcome.losses.push_back(report.loss);
                    const bool saves = !job.save_to.empty() && report.step + 1 == kHalf;
                    return saves ? checkpoint.save(report.lr, 1) : Status();
                  })
             .error());
  GW_TRY(hook->check_replicas("at the end"));
  outcome.parameters = gpu::contents(trainer.parameters());
  outcome.buffers = gpu::contents(trainer.buffers());
  return {};
}

std::vector<RankOutcome> train_ranks(const RankJob& job, Device device) {
  emulation::run_later();
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(job.ranks));
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[job.family]);
  auto made = make_inproc_communicators(job.ranks);
  EXPECT_TRUE(made.has_value());
  if (!made.has_value()) return outcomes;
  on_threads<int>(job.ranks, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const Status status = train_rank(*made.value()[at], problem, job, device, outcomes[at]);
    if (!status.ok()) outcomes[at].fault = std::string(status.message());
    outcomes[at].code = status.code();
    return 0;
  });
  return outcomes;
}

double distance(const std::vector<std::vector<float>>& a,
                const std::vector<std::vector<float>>& b) {
  double off = 0;
  double whole = 0;
  for (std::size_t t = 0; t < a.size(); ++t) {
    for (std::size_t i = 0; i < a[t].size(); ++i) {
      off = std::hypot(off, static_cast<double>(a[t][i]) - static_cast<double>(b[t][i]));
      whole = std::hypot(whole, static_cast<double>(a[t][i]));
    }
  }
  return off / whole;
}

void expect_equal_replicas(const std::vector<RankOutcome>& ranks) {
  for (const RankOutcome& rank : ranks) {
    ASSERT_EQ(rank.fault, "");
    EXPECT_EQ(rank.losses, ranks[0].losses);
    EXPECT_EQ(rank.parameters, ranks[0].parameters);
    EXPECT_EQ(rank.buffers, ranks[0].buffers);
  }
}

constexpr std::size_t kMlp = 0;
constexpr std::size_t kResnet8 = 4;

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

class Checkpoints : public testing::TestWithParam<Saved> {};

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
                         testing::Values(Saved{"sgd"}, Saved{"adamw"}, Saved{"lamb"},
                                         Saved{"nesterov", Precision::kF16, 1e-3}),
                         [](const auto& info) { return std::string(info.param.optimizer); });

}  // namespace
}  // namespace gradwire
