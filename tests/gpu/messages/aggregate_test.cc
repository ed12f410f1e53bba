// The aggregator over gradients on the device that the host plays: means have the host's bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "device/cuda/stream.h"
#include "device/ops.h"
#include "gradwire/aggregator.h"
#include "gradwire/buffer.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

using testing::HasSubstr;

constexpr Device kDevice{MemorySpace::kCuda, 0};
constexpr int kSteps = 3;

// A matrix that is compressed, a large and a small one beside it in its bucket, and a vector that
// travels dense.
const std::vector<Shape> kShapes = {Shape::matrix(70, 61), Shape::vector(77),
                                    Shape::matrix(300, 1001), Shape::matrix(40, 41)};

std::vector<float> gradient_of(std::size_t tensor, int rank, int step) {
  const auto elems = static_cast<std::size_t>(kShapes[tensor].elems());
  const RandomStream draws(7, RandomUse::kTest, tensor, rank, 0, static_cast<std::uint64_t>(step));
  std::vector<float> values(elems);
  for (std::size_t i = 0; i < elems; ++i) values[i] = draws.uniform(i) - 0.5f;
  return values;
}

using Means = std::vector<std::vector<float>>;  // by step and tensor

// One rank's gradients and its stream. On the host neither is used.
class Place {
 public:
  static Result<std::unique_ptr<Place>> make(Device device) {
    GW_ASSIGN(auto stream, cuda::OwnedStream::create(kDevice));
    auto place = std::make_unique<Place>(device, std::move(stream));
    for (const Shape& shape : kShapes) {
      const auto bytes = static_cast<std::size_t>(shape.elems()) * sizeof(float);
      GW_ASSIGN(Buffer buffer, Buffer::allocate(bytes, device));
      place->buffers_.push_back(std::move(buffer));
    }
    return place;
  }
  Place(Device device, cuda::OwnedStream stream) : device_(device), stream_(std::move(stream)) {}

  TensorView tensor(std::size_t t) const { return buffers_[t].tensor(kShapes[t], DType::kF32); }
  Stream stream() const {
    return device_.space == MemorySpace::kCuda ? stream_.stream() : Stream{};
  }
  // Enqueued: `values` live until finish().
  Status write(std::size_t t, const std::vector<float>& values) const {
    return copy_bytes(std::as_bytes(std::span(values)), {}, tensor(t).bytes(), device_, stream());
  }
  std::vector<float> read(std::size_t t) const {
    const auto* first = reinterpret_cast<const float*>(buffers_[t].bytes().data());
    return {first, first + kShapes[t].elems()};
  }

 private:
  Device device_;
  cuda::OwnedStream stream_;
  std::vector<Buffer> buffers_;
};

Status average(Communicator& world, const AggregatorOptions& options, Device device, Means& means) {
  GW_ASSIGN(const std::unique_ptr<Place> place, Place::make(device));
  GW_ASSIGN(const auto aggregator, Aggregator::create(world, Registry::builtin(), options));
  for (std::size_t t = 0; t < kShapes.size(); ++t) {
    GW_TRY(aggregator->add("tensor" + std::to_string(t), place->tensor(t)));
  }
  for (int step = 0; step < kSteps; ++step) {
    std::vector<std::vector<float>> gradients;
    for (std::size_t t = 0; t < kShapes.size(); ++t) {
      gradients.push_back(gradient_of(t, world.rank(), step));
    }
    for (std::size_t t = kShapes.size(); t-- > 0;) {
      GW_TRY(place->write(t, gradients[t]));
      GW_TRY(aggregator->ready(static_cast<int>(t), place->stream()));
    }
    GW_TRY(aggregator->finish(place->stream()));
    for (std::size_t t = 0; t < kShapes.size(); ++t) means.push_back(place->read(t));
  }
  return {};
}

// By rank.
struct Outcome {
  std::vector<std::string> faults;
  std::vector<Means> means;
};

Outcome average_on(int ranks, const AggregatorOptions& options, Device device) {
  emulation::run_later();
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
  const Outcome there = average_on(GetParam().ranks, options, kDevice);
  EXPECT_THAT(here.faults, testing::Each(""));
  EXPECT_THAT(there.faults, testing::Each(""));
  ASSERT_EQ(here.means.size(), there.means.size());
  for (std::size_t r = 0; r < here.means.size(); ++r) {
    ASSERT_EQ(there.means[r].size(), kSteps * kShapes.size()) << "rank " << r;
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
          "randomk:ratio=0.1,ef=ef14"}) {
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
  const Outcome outcome = average_on(1, options, kDevice);
  return outcome.faults.front();
}

TEST(AggregateOnDevice, WhatHasNoWayThereIsRefused) {
  EXPECT_THAT(refusal({.compressor = "qsgd:bits=4"}),
              HasSubstr("gradient 'tensor0' on a CUDA device: combine=sra (combine=gather, or host "
                        "memory, wanted)"));
  EXPECT_THAT(refusal({.compressor = "none", .form = AggregateForm::kReduceScatter}),
              HasSubstr("on a CUDA device: sharded forms"));
  EXPECT_THAT(refusal({.compressor = "threshold:0.1"}), HasSubstr("payloads whose lengths vary"));
}

TEST(AggregateOnDevice, StateOnADeviceDoesNotFollowTheHost) {
  emulation::run_later();
  auto made = make_inproc_communicators(1);
  auto place = Place::make(kDevice);
  ASSERT_TRUE(made.has_value() && place.has_value());
  auto aggregator = Aggregator::create(*made.value().front(), Registry::builtin(),
                                       {.compressor = "signsgd:ef=ef14,combine=gather"});
  ASSERT_TRUE(aggregator.has_value());
  ASSERT_TRUE(aggregator.value()->add("matrix", place.value()->tensor(0)).ok());
  EXPECT_THAT(std::string(aggregator.value()->set_loss_scale(2).message()),
              HasSubstr("loss scale: state 'matrix.error' is on CUDA device 0"));
}

TEST(AggregateOnDevice, GradientsAreOfOnePlace) {
  auto made = make_inproc_communicators(1);
  ASSERT_TRUE(made.has_value());
  auto place = Place::make(kDevice);
  auto host = Buffer::allocate(1000 * sizeof(float));
  ASSERT_TRUE(place.has_value() && host.has_value());
  auto aggregator = Aggregator::create(*made.value().front(), Registry::builtin(), {});
  ASSERT_TRUE(aggregator.has_value());
  EXPECT_TRUE(aggregator.value()->add("there", place.value()->tensor(0)).ok());
  const TensorView here = host.value().tensor(Shape::vector(1000), DType::kF32);
  EXPECT_THAT(std::string(aggregator.value()->add("here", here).message()),
              HasSubstr("gradient 'here' is on the host (CUDA device 0, as the others, wanted)"));
  EXPECT_THAT(
      std::string(aggregator.value()->ready(0, {{MemorySpace::kCuda, 1}, nullptr}).message()),
      HasSubstr("ready on a stream of CUDA device 1 (CUDA device 0 wanted)"));
}

}  // namespace
}  // namespace gradwire
