// The aggregator over gradients on a device: means have the host's bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gradwire/aggregator.h"
#include "tests/gpu/messages/gradients_at.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

using testing::HasSubstr;

constexpr int kSteps = 3;

// A matrix that is compressed, a large and a small one beside it in its bucket, and a vector that
// travels dense.
const std::vector<Shape>& shapes() {
  static const auto* const kShapes = new std::vector<Shape>{
      Shape::matrix(70, 61), Shape::vector(77), Shape::matrix(101, 701), Shape::matrix(40, 41)};
  return *kShapes;
}

using Means = std::vector<std::vector<float>>;  // by step and tensor

Status average(Communicator& world, const AggregatorOptions& options, Device device, Means& means) {
  GW_ASSIGN(const auto here, GradientsAt::make(device, shapes()));
  GW_ASSIGN(const auto aggregator, Aggregator::create(world, Registry::builtin(), options));
  GW_TRY(here->add_to(*aggregator));
  for (int step = 0; step < kSteps; ++step) {
    GW_TRY(here->average(*aggregator, world.rank(), step));
    for (std::size_t t = 0; t < here->count(); ++t) {
      GW_ASSIGN(means.emplace_back(), here->read(t));
    }
  }
  return {};
}

// By rank.
struct Outcome {
  std::vector<std::string> faults;
  std::vector<Means> means;
};

Outcome average_on(int ranks, const AggregatorOptions& options, Device device) {
  Outcome outcome;
  outcome.means.resize(static_cast<std::size_t>(ranks));
  auto made = make_inproc_communicators(ranks);
  if (!made.has_value()) return {{std::string(made.error().message())}, {}};
  outcome.faults = on_threads<std::string>(ranks, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const Status status = average(*made.value()[at], options, device, outcome.means[at]);
    return status.ok() ? std::string() : std::string(status.message());
  });
  return outcome;
}

struct DeviceCase {
  std::string spec;
  int ranks = 1;
};
class AggregateOnDevice : public testing::TestWithParam<DeviceCase> {};

TEST_P(AggregateOnDevice, MeansHaveTheHostsBits) {
  const AggregatorOptions options{.compressor = GetParam().spec, .seed = 3, .allow_unsafe = true};
  const Outcome here = average_on(GetParam().ranks, options, {});
  const Outcome there = average_on(GetParam().ranks, options, kFirstDevice);
  EXPECT_THAT(here.faults, testing::Each(""));
  EXPECT_THAT(there.faults, testing::Each(""));
  ASSERT_EQ(here.means.size(), there.means.size());
  for (std::size_t r = 0; r < here.means.size(); ++r) {
    ASSERT_EQ(there.means[r].size(), kSteps * shapes().size()) << "rank " << r;
    EXPECT_TRUE(here.means[r] == there.means[r]) << "rank " << r;
  }
}

std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const char* spec :
         {"none", "cast:bf16", "cast:fp16,combine=gather", "qsgd:bits=4,combine=gather",
          "fp8:e4m3,combine=gather", "minmax:bits=4,combine=gather", "absmax:bits=8,combine=gather",
          "signsgd:combine=gather", "signsgd:vote=majority,combine=gather",
          "signsgd:ef=ef14,combine=gather", "qsgd:bits=2,ef=ef14,combine=gather",
          "minmax:bits=2,ef=loco,combine=gather", "topk:ratio=0.05,ef=ef14",
          "randomk:ratio=0.1,ef=ef14", "powersgd:rank=2,ef=ef14", "powersgd:rank=9,warm=false",
          "acpsgd:rank=3,ef=ef14",
          // sra
          "qsgd:bits=4", "fp8:e5m2", "mx:e4m3", "natural", "minmax:bits=3", "absmax:bits=4,ef=ef14",
          "qsgd:bits=2,ef=ef14", "qsgd:bits=4,ef=ef14,ef_storage=bf16", "cast:bf16,ef=ef14",
          "minmax:bits=2,ef=loco", "minmax:bits=2,ef=loco,ef_storage=fp32",
          "fp8:e4m3,ef=ef14,ef_storage=int8", "signsgd", "signsgd:ef=ef14", "minmax:bits=4,ef=ef21",
          "absmax:bits=4,ef=ef21_sgdm", "signsgd:vote=majority,combine=sra"}) {
      cases.push_back({spec, ranks});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Ranks, AggregateOnDevice, testing::ValuesIn(device_cases()),
                         [](const auto& info) {
                           std::string name = std::to_string(info.param.ranks) + "_ranks_";
                           for (const char c : info.param.spec) {
                             name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           }
                           return name;
                         });

std::string refusal(const AggregatorOptions& options) {
  const Outcome outcome = average_on(1, options, kFirstDevice);
  return outcome.faults.front();
}

TEST(AggregateOnDevice, WhatHasNoWayThereIsRefused) {
  EXPECT_THAT(refusal({.compressor = "topk:ratio=0.05,combine=oktopk"}),
              HasSubstr("gradient 'tensor0' on a CUDA device: combine=oktopk (combine=gather, or "
                        "host memory, wanted)"));
  EXPECT_THAT(refusal({.compressor = "none", .form = AggregateForm::kReduceScatter}),
              HasSubstr("on a CUDA device: sharded forms"));
  EXPECT_THAT(refusal({.compressor = "threshold:0.1"}), HasSubstr("payloads whose lengths vary"));
}

TEST(AggregateOnDevice, StateOnADeviceDoesNotFollowTheHost) {
  auto made = make_inproc_communicators(1);
  auto here = GradientsAt::make(kFirstDevice, shapes());
  ASSERT_TRUE(made.has_value() && here.has_value());
  auto aggregator = Aggregator::create(*made.value().front(), Registry::builtin(),
                                       {.compressor = "signsgd:ef=ef14,combine=gather"});
  ASSERT_TRUE(aggregator.has_value());
  ASSERT_TRUE(aggregator.value()->add("matrix", here.value()->tensor(0)).ok());
  EXPECT_TRUE(aggregator.value()->set_loss_scale(2).ok());  // nothing to change yet
  EXPECT_TRUE(aggregator.value()->set_learning_rate(0.1).ok());
  EXPECT_TRUE(aggregator.value()->set_learning_rate(0.2).ok());  // which no residual follows
  EXPECT_THAT(std::string(aggregator.value()->set_loss_scale(4).message()),
              HasSubstr("loss scale: state 'matrix.error' is on CUDA device 0"));
}

TEST(AggregateOnDevice, GradientsAreOfOnePlace) {
  auto made = make_inproc_communicators(1);
  auto there = GradientsAt::make(kFirstDevice, shapes());
  auto host = Buffer::allocate(1000 * sizeof(float));
  ASSERT_TRUE(made.has_value() && there.has_value() && host.has_value());
  auto aggregator = Aggregator::create(*made.value().front(), Registry::builtin(), {});
  ASSERT_TRUE(aggregator.has_value());
  EXPECT_TRUE(aggregator.value()->add("there", there.value()->tensor(0)).ok());
  const TensorView here = host.value().tensor(Shape::vector(1000), DType::kF32);
  EXPECT_THAT(std::string(aggregator.value()->add("here", here).message()),
              HasSubstr("gradient 'here' is on the host (CUDA device 0, as the others, wanted)"));
  EXPECT_THAT(
      std::string(aggregator.value()->ready(0, {{MemorySpace::kCuda, 1}, nullptr}).message()),
      HasSubstr("ready on a stream of CUDA device 1 (CUDA device 0 wanted)"));
}

}  // namespace
}  // namespace gradwire
