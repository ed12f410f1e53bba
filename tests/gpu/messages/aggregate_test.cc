// The aggregator over gradients on a device: means and state have the bits of a job on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gradwire/aggregator.h"
#include "tests/gpu/messages/device_job.h"
#include "tests/support/fails.h"
#include "tests/support/short_run.h"

namespace gradwire::testing::aggregate_test {
namespace {

struct DeviceCase {
  std::string spec;
  int ranks = 1;
};

std::string name_of(const ::testing::TestParamInfo<DeviceCase>& info) {
  std::string name = std::to_string(info.param.ranks) + "_ranks_";
  for (const char c : info.param.spec) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name;
}

// Every spec on every number of ranks. In a short run on one of them, by turns, and where that is
// one rank, which exchanges nothing, on another.
std::vector<DeviceCase> cases(const std::vector<std::string>& specs,
                              const std::vector<int>& ranks) {
  std::vector<DeviceCase> all;
  const std::size_t n = ranks.size();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      const bool turn = j == i % n || (ranks[i % n] == 1 && j == 1 + i / n % (n - 1));
      if (turn || !is_short_run()) all.push_back({specs[i], ranks[j]});
    }
  }
  return all;
}

class AggregateOnDevice : public ::testing::TestWithParam<DeviceCase> {};

TEST_P(AggregateOnDevice, MeansAndStateHaveTheHostsBits) {
  expect_equal(job_of(GetParam().spec, GetParam().ranks));
}
INSTANTIATE_TEST_SUITE_P(Together, AggregateOnDevice,
                         ::testing::ValuesIn(cases({"none",
                                                    "cast:bf16",
                                                    "cast:fp16,combine=gather",
                                                    "qsgd:bits=4,combine=gather",
                                                    "fp8:e4m3,combine=gather",
                                                    "minmax:bits=4,combine=gather",
                                                    "absmax:bits=8,combine=gather",
                                                    "signsgd:combine=gather",
                                                    "signsgd:vote=majority,combine=gather",
                                                    "signsgd:ef=ef14,combine=gather",
                                                    "qsgd:bits=2,ef=ef14,combine=gather",
                                                    "minmax:bits=2,ef=loco,combine=gather",
                                                    "topk:ratio=0.05,ef=ef14",
                                                    "randomk:ratio=0.1,ef=ef14",
                                                    "randomk:ratio=0.1,combine=gather",
                                                    "threshold:0.4",
                                                    "threshold:0.4,index=bitmap,ef=ef14",
                                                    "threshold:0.9,ef=ef14",
                                                    "powersgd:rank=2,ef=ef14",
                                                    "powersgd:rank=9,warm=false",
                                                    "acpsgd:rank=3,ef=ef14",
                                                    "atomo:budget=3",
                                                    "lossless",
                                                    "cltk:ratio=0.05,ef=ef14",
                                                    "dgc:ratio=0.05",
                                                    "block_sparse:block=16,ef=ef14",
                                                    "block_sparse:block=16|cast:bf16",
                                                    "onebit:ef=ef14",
                                                    "terngrad",
                                                    "signum",
                                                    "thc",
                                                    "global_qsgd:bits=4",
                                                    "powersgd:rank=2,ef=ef14,combine=gather",
                                                    "acpsgd:rank=3,ef=ef14,combine=gather",
                                                    "terngrad:combine=gather",
                                                    "thc:combine=gather"},
                                                   {1, 2, 3, 4})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Sra, AggregateOnDevice,
    ::testing::ValuesIn(cases(
        {"qsgd:bits=4", "fp8:e5m2", "mx:e4m3", "natural", "minmax:bits=3", "signsgd",
         "absmax:bits=4,ef=ef14", "qsgd:bits=2,ef=ef14", "signsgd:ef=ef14", "cast:bf16,ef=ef14",
         "qsgd:bits=4,ef=ef14,ef_storage=bf16", "fp8:e4m3,ef=ef14,ef_storage=int8",
         "minmax:bits=2,ef=loco", "minmax:bits=2,ef=loco,ef_storage=fp32", "minmax:bits=4,ef=ef21",
         "absmax:bits=4,ef=ef21_sgdm", "signsgd:vote=majority,combine=sra", "qsgd:bits=8@0/3@1",
         "absmax:bits=2@0/8@1,ef=ef14"},
        {1, 2, 3, 4})),
    name_of);
// Of the third all its sums travel, of the last those of the small matrix.
INSTANTIATE_TEST_SUITE_P(OkTopk, AggregateOnDevice,
                         ::testing::ValuesIn(cases({"topk:ratio=0.05,combine=oktopk",
                                                    "topk:ratio=0.05,combine=oktopk,ef=ef14",
                                                    "topk:ratio=0.7,combine=oktopk,ef=ef14",
                                                    "topk:ratio=0.02,combine=oktopk,ef=ef21",
                                                    "topk:ratio=0.02,combine=oktopk,ef=loco",
                                                    "threshold:0.7,combine=oktopk,ef=ef14",
                                                    "small=topk:ratio=0.9,combine=oktopk,ef=ef14;"
                                                    "*=topk:ratio=0.01,combine=oktopk,ef=ef14"},
                                                   {1, 2, 3, 4})),
                         name_of);

struct LevelCase {
  std::string spec;
  std::vector<int> node_of;
};

std::string name_of_levels(const ::testing::TestParamInfo<LevelCase>& info) {
  std::string name = "nodes_";
  for (const int node : info.param.node_of) name += std::to_string(node);
  return name + name_of({{info.param.spec, static_cast<int>(info.param.node_of.size())}, 0});
}

class TwoLevelsOnDevice : public ::testing::TestWithParam<LevelCase> {};

TEST_P(TwoLevelsOnDevice, HaveTheHostsBits) {
  Job job = job_of(GetParam().spec, static_cast<int>(GetParam().node_of.size()));
  job.node_of = GetParam().node_of;
  job.restart_after = 2;
  expect_equal(job);
}
std::vector<LevelCase> level_cases(const std::vector<std::string>& specs) {
  const std::vector<std::vector<int>> nodes{{0, 0, 1, 1}, {0, 1, 1}};
  std::vector<LevelCase> all;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    for (std::size_t j = 0; j < nodes.size(); ++j) {
      if (i % nodes.size() == j || !is_short_run()) all.push_back({specs[i], nodes[j]});
    }
  }
  all.push_back({specs.front(), {0, 0}});
  all.push_back({specs.front(), {0, 1}});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Nodes, TwoLevelsOnDevice,
                         ::testing::ValuesIn(level_cases(
                             {"topk:ratio=0.05,ef=ef14,intra_node=none", "none:intra_node=none",
                              "cast:bf16,intra_node=none", "qsgd:bits=4,intra_node=none",
                              "qsgd:bits=4,intra_node=cast:bf16",
                              "qsgd:bits=2,ef=ef14,intra_node=none",
                              "minmax:bits=4,ef=ef21,intra_node=none",
                              "absmax:bits=4,transform=hadamard,intra_node=none",
                              "signsgd:ef=ef14,combine=gather,intra_node=none",
                              "threshold:0.4,ef=ef14,intra_node=none,warmup_steps=1",
                              "topk:ratio=0.05,combine=oktopk,ef=ef14,intra_node=none",
                              "powersgd:rank=2,ef=ef14,intra_node=none"})),
                         name_of_levels);

class ShardsOnDevice : public ::testing::TestWithParam<DeviceCase> {};

TEST_P(ShardsOnDevice, HaveTheHostsBits) {
  Job job = job_of(GetParam().spec, GetParam().ranks);
  job.restart_after = 2;
  for (const AggregateForm form : {AggregateForm::kReduceScatter, AggregateForm::kAllGather}) {
    job.form = form;
    // Parameters must arrive as large as they are.
    const bool votes = job.compressor.find("vote") != std::string::npos;
    if (!votes || form == AggregateForm::kReduceScatter) expect_equal(job);
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, ShardsOnDevice,
                         ::testing::ValuesIn(cases({"none", "qsgd:bits=4", "absmax:bits=4,ef=ef14",
                                                    "minmax:bits=2,ef=loco", "fp8:e4m3,ef=ef21",
                                                    "signsgd:vote=majority"},
                                                   {1, 2, 3})),
                         name_of);

// Saved and loaded in the middle, by a job whose loss scale and learning rate change.
class StateOnDevice : public ::testing::TestWithParam<DeviceCase> {};

TEST_P(StateOnDevice, FollowsScalesAndGoesOnFromItsCheckpointAsTheHosts) {
  Job job = job_of(GetParam().spec, GetParam().ranks);
  job.steps = 4;
  job.restart_after = 2;
  job.loss_scale = [](int step) { return step < 1 ? 4.0 : 2.0; };
  job.learning_rate = [](int step) { return step < 3 ? 0.1 : 0.05; };
  expect_equal(job);
}

// On another number of ranks than the one that saved it.
TEST_P(StateOnDevice, IsCarriedToOtherRanksAsTheHosts) {
  const JobOutcome old = run_job(there(job_of(GetParam().spec, GetParam().ranks)));
  ASSERT_TRUE(old.status.ok()) << old.status.message();
  Job job = job_of(GetParam().spec, GetParam().ranks == 2 ? 3 : 2);
  job.start_saved = old.saved;
  job.steps = 2;
  expect_equal(job);
}
const std::vector<std::string>& specs_with_state() {
  static const auto* const kSpecs =
      new std::vector<std::string>{"qsgd:bits=4,ef=ef14,ef_rescale_lr=true",
                                   "signsgd:ef=ef14,combine=gather",
                                   "absmax:bits=4,ef=ef14,ef_storage=bf16,ef_rescale_lr=true",
                                   "minmax:bits=2,ef=loco",
                                   "minmax:bits=4,ef=ef21",
                                   "absmax:bits=4,ef=ef21_sgdm,combine=gather",
                                   "topk:ratio=0.05,ef=ef14",
                                   "topk:ratio=0.05,ef=ef14,combine=oktopk"};
  return *kSpecs;
}
INSTANTIATE_TEST_SUITE_P(Ranks, StateOnDevice,
                         ::testing::ValuesIn(cases(specs_with_state(), {1, 2})), name_of);

TEST(StateOnDevice, WhatWouldNotBeFiniteIsLeftAsItWas) {
  Job job = job_of("signsgd:ef=ef14,combine=gather", 1);
  job.loss_scale = [](int step) { return step < 2 ? 1e-300 : 1e300; };
  const JobOutcome device = run_job(there(job));
  EXPECT_THAT(device.status, fails(Code::kInvalidArgument, "finite", "rescaled"));
}

Status refusal(Job job) { return run_job(there(std::move(job))).status; }

TEST(AggregateOnDevice, WhatHasNoWayThereIsRefused) {
  EXPECT_THAT(refusal(job_of("topk:ratio=0.05,index=gaps", 1)),
              fails(Code::kUnsupported, "index=gaps"));
}

TEST(AggregateOnDevice, GradientsAreOfOnePlace) {
  auto made = make_inproc_communicators(1);
  auto there = GradientsAt::make(kFirstDevice, {Shape::vector(10)});
  auto host = Buffer::allocate(1000 * sizeof(float));
  ASSERT_TRUE(made.has_value() && there.has_value() && host.has_value());
  auto aggregator = Aggregator::create(*made.value().front(), Registry::builtin(), {});
  ASSERT_TRUE(aggregator.has_value());
  EXPECT_TRUE(aggregator.value()->add("there", there.value()->tensor(0)).ok());
  const TensorView here = host.value().tensor(Shape::vector(1000), DType::kF32);
  EXPECT_THAT(aggregator.value()->add("here", here),
              fails(Code::kInvalidArgument, "'here'", "host", "CUDA device 0"));
  EXPECT_THAT(aggregator.value()->ready(0, {{MemorySpace::kCuda, 1}, nullptr}),
              fails(Code::kInvalidArgument, "stream", "CUDA device 1", "CUDA device 0"));
}

}  // namespace
}  // namespace gradwire::testing::aggregate_test
