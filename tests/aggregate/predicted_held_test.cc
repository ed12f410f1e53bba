// What exchanges are foretold to keep, beside what real ones say that they do.
#include "aggregate/plan/predicted_held.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/registry.h"
#include "tests/support/aggregate_job.h"

namespace gradwire::testing::predicted_held_test {
namespace {

struct Case {
  const char* spec;
  bool exact = true;
};

// Three matrices in two buckets, and vectors between them.
std::vector<JobTensor> tensors() {
  return {{"a", Shape::matrix(48, 40)}, {"a.bias", Shape::vector(40)},
          {"b", Shape::matrix(30, 51)}, {"b.bias", Shape::vector(30)},
          {"c", Shape::matrix(64, 33)}, {"c.bias", Shape::vector(7)}};
}

Job job_of(const std::string& spec, int ranks) {
  Job job;
  job.compressor = spec;
  job.tensors = tensors();
  job.ranks = ranks;
  job.steps = 4;
  job.bucket_bytes = 15000;
  job.contiguous = true;
  job.allow_unsafe = true;
  return job;
}

PredictedHeld foretold(const Job& job, HeldQuestion question = {}, DType dtype = DType::kF32) {
  AggregatorOptions options;
  options.compressor = job.compressor;
  options.allow_unsafe = job.allow_unsafe;
  options.form = question.form = job.form;
  question.size = job.ranks;
  question.bucket_bytes = job.bucket_bytes;
  question.adjacent = job.contiguous;
  auto plan = read_plan(Registry::builtin(), options);
  EXPECT_TRUE(plan.has_value()) << job.compressor << ": " << plan.error().message();
  if (!plan.has_value()) return {};
  static std::byte nowhere{};  // only shapes are asked for
  std::vector<Parameter> parameters;
  for (const JobTensor& tensor : job.tensors) {
    auto one = plan_parameter(plan.value(), options, tensor.name,
                              TensorView(&nowhere, tensor.shape, dtype));
    EXPECT_TRUE(one.has_value()) << job.compressor << ": " << one.error().message();
    if (!one.has_value()) return {};
    parameters.push_back(std::move(one).value());
  }
  return predict_held(parameters, question);
}

// What rank 0's aggregator says after two steps, of zeros one after another in memory.
std::uint64_t held_by(const Job& job, DType dtype, bool lean) {
  std::uint64_t held = 0;
  const auto statuses = on_ranks(job.ranks, [&](std::unique_ptr<Communicator>& communicator) {
    AggregatorOptions options;
    options.compressor = job.compressor;
    options.form = job.form;
    options.bucket_bytes = job.bucket_bytes;
    options.lean = lean;
    GW_ASSIGN(const auto aggregator,
              Aggregator::create(*communicator, Registry::builtin(), options));
    std::int64_t elems = 0;
    for (const JobTensor& tensor : job.tensors) elems += tensor.shape.elems();
    std::vector<std::byte> memory(static_cast<std::size_t>(elems) * size_of(dtype));
    std::byte* place = memory.data();
    for (const JobTensor& tensor : job.tensors) {
      const TensorView view(place, tensor.shape, dtype);
      GW_TRY(aggregator->add(tensor.name, view));
      place += view.bytes().size();
    }
    for (int step = 0; step < 2; ++step) {
      for (int t = static_cast<int>(job.tensors.size()); t-- > 0;) GW_TRY(aggregator->ready(t));
      GW_TRY(aggregator->finish());
    }
    if (communicator->rank() == 0) held = aggregator->stats().held_bytes;
    return Status();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return held;
}

void compare(const Job& job, bool exact) {
  const std::string what = job.compressor + ", " + std::to_string(job.ranks) + " ranks";
  const PredictedHeld predicted = foretold(job);
  const JobOutcome outcome = run_job(job);
  ASSERT_TRUE(outcome.status.ok()) << what << ": " << outcome.status.message();
  EXPECT_EQ(predicted.exact, exact) << what;
  if (exact) {
    EXPECT_EQ(predicted.bytes, outcome.stats.front().held_bytes) << what;
  }
  for (const AggregateStats& stats : outcome.stats) {
    EXPECT_LE(stats.held_bytes, predicted.bytes) << what;
  }
}

// Each method once, with the kinds of error feedback and ways of exchange among them.
constexpr Case kMethods[] = {
    {"none"},
    {"lossless", false},
    {"block_sparse", false},
    {"cast:bf16"},
    {"cast:fp16,ef=ef14"},
    {"cast:bf16,combine=gather"},
    {"fp8:e4m3,ef=loco"},
    {"mx:e2m1"},
    {"natural:ef=ef21"},
    {"qsgd:bits=4,ef=ef14"},
    {"qsgd:bits=4,combine=gather,ef=ef14,ef_storage=bf16"},
    {"minmax:bits=4,ef=ef21_sgdm"},
    {"absmax:bits=4,ef=ef14,ef_storage=int8"},
    {"terngrad"},
    {"global_qsgd:bits=4"},
    {"thc"},
    {"signsgd:ef=ef14"},
    {"signum"},
    {"onebit:ef=ef14"},
    {"topk:ratio=0.1,ef=ef14"},
    {"topk:ratio=0.1,ef=ef21_sgdm"},
    {"topk:ratio=0.1,ef=ef14,combine=oktopk"},
    {"threshold:0.5,ef=ef14", false},
    {"dgc:ratio=0.1", false},
    {"cltk:ratio=0.1,ef=ef14", false},
    {"randomk:ratio=0.1,ef=ef14"},
    {"powersgd:rank=2,ef=ef14"},
    {"powersgd:rank=2,warm=false,ef=ef21"},
    {"powersgd:rank=2,ef=ef14,combine=gather"},
    {"acpsgd:rank=2,ef=ef14"},
    {"acpsgd:rank=64"},
    {"atomo", false},
    {"a*=qsgd:bits=4;*=none"},
    {"qsgd:bits=4,warmup_steps=1"},
};

TEST(PredictedHeld, EveryMethodIsInTheList) {
  std::set<std::string> named;
  for (const Case& one : kMethods) {
    const std::string spec = one.spec;
    named.insert(spec.substr(0, spec.find_first_of(":,")));
  }
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    EXPECT_TRUE(named.contains(method.name)) << method.name;
  }
}

TEST(PredictedHeld, IsWhatExchangesSayThatTheyKeep) {
  for (const Case& one : kMethods) {
    for (const int ranks : {2, 3, 4}) compare(job_of(one.spec, ranks), one.exact);
  }
  for (const char* spec : {"none", "qsgd:bits=4,ef=ef14", "topk:ratio=0.1"}) {
    compare(job_of(spec, 1), true);
  }
}

// Where gradients lie apart, buckets of several are packed.
TEST(PredictedHeld, PackedBucketsCount) {
  Job job = job_of("none", 2);
  job.contiguous = false;
  compare(job, true);
  EXPECT_EQ(foretold(job_of("none", 2)).bytes, 0u);
  EXPECT_GT(foretold(job).bytes, 0u);
}

TEST(PredictedHeld, OfShardedForms) {
  for (const AggregateForm form : {AggregateForm::kReduceScatter, AggregateForm::kAllGather}) {
    for (const char* spec : {"none", "qsgd:bits=8", "cast:bf16,ef=ef14", "minmax:bits=8,ef=ef21"}) {
      Job job = job_of(spec, 3);
      job.form = form;
      compare(job, true);
    }
  }
}

// Of four buckets with two tensors each.
TEST(PredictedHeld, LeanShardsKeepNothing) {
  Job job = job_of("none", 2);
  job.tensors.clear();
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    job.tensors.push_back({name, Shape::vector(10)});
  }
  job.bucket_bytes = 80;
  job.form = AggregateForm::kReduceScatter;
  EXPECT_EQ(foretold(job).bytes, 320u);
  const PredictedHeld lean = foretold(job, {.size = 1, .bucket_bytes = 1, .lean = true});
  EXPECT_TRUE(lean.exact);
  EXPECT_EQ(lean.bytes, 0u);
  EXPECT_EQ(held_by(job, DType::kF32, true), 0u);
  EXPECT_EQ(held_by(job, DType::kF32, false), 320u);
}

// Buckets of unlike sizes, of which two at a time are in fp32: the two largest stay.
TEST(PredictedHeld, GradientsOf16BitsHaveTheirFloatsBesides) {
  for (const char* spec : {"qsgd:bits=4,ef=ef14", "topk:ratio=0.1", "signsgd:ef=ef14"}) {
    for (const AggregateForm form : {AggregateForm::kAllReduce, AggregateForm::kReduceScatter}) {
      Job job = job_of(spec, 2);
      if (form != AggregateForm::kAllReduce && job.compressor.starts_with("topk")) continue;
      job.form = form;
      job.bucket_bytes = 3000;
      const PredictedHeld predicted = foretold(job, {}, DType::kBF16);
      EXPECT_TRUE(predicted.exact) << spec;
      EXPECT_EQ(predicted.bytes, held_by(job, DType::kBF16, false)) << spec;
    }
  }
}

// One tensor of several strips holds as much as in one.
TEST(PredictedHeld, StripsAreNoMore) {
  Job job = job_of("qsgd:bits=4,ef=ef14", 2);
  job.tensors = {{"large", Shape::matrix(300, 200)}};
  compare(job, true);
}

}  // namespace
}  // namespace gradwire::testing::predicted_held_test
