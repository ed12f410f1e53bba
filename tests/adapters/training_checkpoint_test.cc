// Training that goes on from a checkpoint: bit for bit on as many ranks; on others what compression
// still owes the model is kept.
#include "adapters/trainer/training_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "gradwire/schedule.h"
#include "tests/adapters/deferred_mean.h"
#include "tests/adapters/training_runs.h"
#include "tests/support/fails.h"

namespace gradwire::testing::training_checkpoint_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

// "name:key=value" of a method without defaults for all of its keys.
const std::map<std::string, std::string>& examples() {
  static const std::map<std::string, std::string> kExamples = {{"cast", "cast:bf16"},
                                                               {"topk", "topk:ratio=0.05"},
                                                               {"threshold", "threshold:tau=0.02"},
                                                               {"randomk", "randomk:ratio=0.1"},
                                                               {"cltk", "cltk:ratio=0.1"},
                                                               {"qsgd", "qsgd:bits=4"},
                                                               {"powersgd", "powersgd:rank=2"},
                                                               {"acpsgd", "acpsgd:rank=2"},
                                                               {"atomo", "atomo:budget=2"}};
  return kExamples;
}

bool legal(const std::string& spec) {
  bool accepted = true;
  on_ranks(1, [&](std::unique_ptr<Communicator>& communicator) {
    AggregatorOptions options;
    options.compressor = spec;
    accepted = Aggregator::create(*communicator, Registry::builtin(), options).has_value();
    return Status();
  });
  return accepted;
}

std::string with_keys(const std::string& method, const std::string& keys) {
  return method + (method.find(':') == std::string::npos ? ":" : ",") + keys;
}

std::vector<std::string> legal_specs(const std::string& feedback) {
  std::vector<std::string> specs;
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    const auto example = examples().find(method.name);
    const std::string plain = example == examples().end() ? method.name : example->second;
    const std::string spec = with_keys(plain, "min_elems=0,dense_1d=false,ef=" + feedback);
    if (legal(spec)) specs.push_back(spec);
  }
  return specs;
}

class Feedback : public ::testing::TestWithParam<const char*> {};

TEST_P(Feedback, ResumesBitForBitWithEveryLegalMethod) {
  const std::vector<std::string> specs = legal_specs(GetParam());
  // Of 24 methods dgc has feedback of its own, and signum's votes allow none.
  EXPECT_EQ(specs.size(), std::string_view(GetParam()) == "none" ? 24U : 22U);
  for (const std::string& spec : specs) expect_exact({.compressor = spec});
}

INSTANTIATE_TEST_SUITE_P(All, Feedback,
                         ::testing::Values("none", "ef14", "ef21", "ef21_sgdm", "loco"));

TEST(TrainingCheckpoint, EveryMethodOfTheRegistryIsResumedSomewhere) {
  std::vector<std::string> all = legal_specs("none");
  for (const std::string& spec : legal_specs("ef14")) all.push_back(spec);
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    const auto same = [&](const std::string& spec) {
      return spec == method.name || spec.starts_with(method.name + ":");
    };
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), same)) << method.name;
  }
}

TEST(TrainingCheckpoint, ResumesBitForBitUnderEveryWayToStoreAndCombine) {
  const std::string small = ",min_elems=0,dense_1d=false";
  for (const std::string spec :
       {"topk:ratio=0.05,ef=ef14,ef_storage=bf16", "topk:ratio=0.05,ef=ef14,ef_storage=int8",
        "topk:ratio=0.05,ef=loco,ef_storage=fp32", "qsgd:bits=4,ef=ef14,combine=sra",
        "qsgd:bits=4,ef=ef21,combine=sra", "signsgd:ef=ef14,combine=gather",
        "topk:ratio=0.05,ef=ef14,combine=oktopk", "topk:ratio=0.05,ef=ef14,warmup_steps=15",
        "topk:ratio=0.05,ef=ef14,ef_rescale_lr=true"}) {
    expect_exact({.compressor = spec + small, .ranks = 3});
  }
  expect_exact({.compressor = "*.bias=none;fc1.*=topk:ratio=0.1,ef=ef14;*=qsgd:bits=8"});
  expect_exact({.compressor = "topk:ratio=0.1,ef=ef14,intra_node=none" + small,
                .ranks = 4,
                .node_of = {0, 0, 1, 1}});
  expect_exact({.compressor = "topk:ratio=0.1,ef=ef14" + small, .accumulate = 3});
}

TEST(TrainingCheckpoint, ResumesMomentaOfWorkers) {
  for (const int accumulate : {1, 2}) {
    expect_exact({.accumulate = accumulate, .momentum_at = MomentumAt::kWorker});
    expect_exact({.compressor = "topk:ratio=0.1,ef=ef14,min_elems=0",
                  .accumulate = accumulate,
                  .momentum_at = MomentumAt::kWorker});
  }
}

TEST(TrainingCheckpoint, ResumesRunningStatisticsOfBatchNorm) {
  expect_exact({.model = &resnet()});
  expect_exact({.model = &resnet(), .ranks = 3, .accumulate = 2});
  expect_exact({.model = &resnet(),
                .compressor = "topk:ratio=0.05,ef=ef14,min_elems=0",
                .momentum_at = MomentumAt::kWorker});
}

TEST(TrainingCheckpoint, SavingChangesNothing) {
  const TemporaryFolder folder;
  const Training training{.compressor = "topk:ratio=0.05,ef=ef14,min_elems=0"};
  const Outcome with = run(training, {.save_to = folder.path()});
  const Outcome without = run(training, {});
  ASSERT_TRUE(all_ok(with) && all_ok(without));
  EXPECT_EQ(with.parameters, without.parameters);
}

TEST(TrainingCheckpoint, CanonicalSumsGoOnExactlyOnAnyNumberOfRanks) {
  for (const MomentumAt where : {MomentumAt::kServer, MomentumAt::kWorker}) {
    const std::pair<int, int> shapes[] = {{4, 1}, {2, 2}, {1, 4}};  // ranks, micro-batches of each
    for (const auto& [ranks, accumulate] : shapes) {
      const TemporaryFolder folder;
      const Outcome whole = run({.ranks = ranks, .accumulate = accumulate, .momentum_at = where},
                                {.save_to = folder.path()});
      ASSERT_TRUE(all_ok(whole));
      for (const auto& [other_ranks, other_accumulate] : shapes) {
        const Outcome resumed =
            run({.ranks = other_ranks, .accumulate = other_accumulate, .momentum_at = where},
                {.resume_from = folder.path()});
        ASSERT_TRUE(all_ok(resumed));
        // 2 x 2 sums halves first: it is exact against itself and, as the mean is a left fold in
        // rank order of ranks' means, not against four ranks.
        const bool same = ranks == 2 ? other_ranks == 2 : other_ranks != 2;
        if (same) {
          EXPECT_EQ(resumed.parameters[0], whole.parameters[0]) << ranks << other_ranks;
        }
      }
    }
  }
}

TEST(TrainingCheckpoint, OtherRanksKeepTheAverageResidualAndTheLoss) {
  const std::string small = ",min_elems=0,dense_1d=false";
  for (const std::string spec : {"topk:ratio=0.05,ef=ef14", "qsgd:bits=4,ef=ef14,combine=sra",
                                 "signsgd:ef=ef14", "powersgd:rank=2,ef=ef14"}) {
    const std::pair<int, int> changes[] = {{4, 2}, {2, 4}, {3, 4}, {4, 1}};
    for (const auto& [before, after] : changes) {
      SCOPED_TRACE(spec + ", " + std::to_string(before) + " to " + std::to_string(after));
      const TemporaryFolder first;
      const TemporaryFolder second;
      Training training{.compressor = spec + small, .ranks = before, .lr = 0.05};
      const Outcome whole = run(training, {.save_to = first.path()});
      ASSERT_TRUE(all_ok(whole));
      training.ranks = after;
      const Outcome resumed =
          run(training, {.resume_from = first.path(), .save_to = second.path(), .save_after = 0});
      ASSERT_TRUE(all_ok(resumed));
      EXPECT_LE(relative_difference(deferred_mean(first.path()), deferred_mean(second.path())),
                1e-6);
      EXPECT_NEAR(resumed.last_loss, whole.last_loss, 0.02 * whole.last_loss);
    }
  }
}

template <typename... Words>
void expect_refused(const Training& training, const std::string& folder, const Words&... words) {
  const Outcome outcome = run(training, {.resume_from = folder});
  for (const Status& status : outcome.statuses) EXPECT_THAT(status, fails(kInvalid, words...));
}

TEST(TrainingCheckpoint, ASpecsKeysMayHaveOldAndPresentNames) {
  const std::string spec = "topk:ratio=0.05,ef=ef14,min_elems=0,";
  const Training old_names{.compressor = spec + "inner=none", .ranks = 4, .node_of = {0, 0, 1, 1}};
  Training present = old_names;
  present.compressor = spec + "intra_node=none";
  for (const auto& [first, second] : {std::pair(old_names, present), {present, old_names}}) {
    const TemporaryFolder folder;
    ASSERT_TRUE(all_ok(run(first, {.save_to = folder.path()})));
    EXPECT_TRUE(all_ok(run(second, {.resume_from = folder.path()})));
  }
}

TEST(TrainingCheckpoint, WhatDoesNotFitIsNamed) {
  const TemporaryFolder folder;
  const Training training{.compressor = "topk:ratio=0.05,ef=ef14,min_elems=0"};
  ASSERT_TRUE(all_ok(run(training, {.save_to = folder.path()})));
  Training other = training;
  other.compressor = "none";
  expect_refused(other, folder.path(), "compressor", "topk:ratio=0.05,ef=ef14,min_elems=0", "none");
  other = training;
  other.steps = 5;
  expect_refused(other, folder.path(), "10 steps", "5");
  other = training;
  other.momentum_at = MomentumAt::kWorker;
  expect_refused(other, folder.path(), "tensor", "worker");
}

}  // namespace
}  // namespace gradwire::testing::training_checkpoint_test
