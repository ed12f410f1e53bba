// The aggregator over gradients of 16 bits on a device: means and state have the bits of the same
// ranks with gradients on the host.
#include <gtest/gtest.h>

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/small_floats.h"
#include "gradwire/aggregator.h"
#include "tests/gpu/messages/gradients_at.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/short_run.h"

namespace gradwire::testing::narrow_aggregate_test {
namespace {

using Bits = std::vector<std::uint16_t>;

struct NarrowCase {
  std::string spec;
  DType dtype = DType::kBF16;
  int ranks = 2;
  float scale = 1;  // that the gradients bear
  AggregateForm form = AggregateForm::kAllReduce;
};

constexpr int kSteps = 3;

const std::vector<Shape>& shapes() {
  static const auto* const kShapes =
      new std::vector<Shape>{Shape::matrix(70, 61), Shape::vector(77), Shape::matrix(40, 41)};
  return *kShapes;
}

// Of one rank: what its gradients become, tensor after tensor and step after step, and its state.
struct Outcome {
  std::vector<Bits> means;
  std::map<std::string, std::vector<std::byte>> state;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// A rank's gradients and, on a device, the stream on which they are written and read.
class Narrow {
 public:
  static Result<std::unique_ptr<Narrow>> make(Device device, DType dtype) {
    auto made = std::make_unique<Narrow>();
    made->device_ = device;
    made->dtype_ = dtype;
    if (device.space == MemorySpace::kCuda) {
      GW_ASSIGN(made->lane_, CopyLane::create(device));
    }
    for (const Shape& shape : shapes()) {
      GW_ASSIGN(Buffer buffer,
                Buffer::allocate(static_cast<std::size_t>(shape.elems()) * 2, device));
      made->buffers_.push_back(std::move(buffer));
      made->host_.emplace_back(static_cast<std::size_t>(shape.elems()));
    }
    return made;
  }
  TensorView view(std::size_t t) const { return buffers_[t].tensor(shapes()[t], dtype_); }
  Stream stream() const { return lane_ == nullptr ? Stream{} : lane_->to_device(); }
  // The copy may run later: host_ is written again when its step is over.
  Status write(std::size_t t, int rank, int step, float scale) {
    const std::vector<float> values = gradient_of(t, shapes()[t].elems(), rank, step);
    for (std::size_t i = 0; i < values.size(); ++i) host_[t][i] = narrowed(values[i] * scale);
    return copy_bytes(std::as_bytes(std::span(host_[t])), {}, view(t).bytes(), device_, stream());
  }
  Result<Bits> read(std::size_t t) const {
    Bits values(host_[t].size());
    GW_TRY(copy_bytes(view(t).bytes(), device_, std::as_writable_bytes(std::span(values)), {},
                      stream()));
    if (lane_ != nullptr) GW_TRY(cuda::synchronize(stream()));
    return values;
  }

 private:
  std::uint16_t narrowed(float value) const {
    return dtype_ == DType::kF16 ? fp16_from_float(value) : bf16_from_float(value);
  }

  Device device_;
  DType dtype_ = DType::kBF16;
  std::unique_ptr<CopyLane> lane_;
  std::vector<Buffer> buffers_;
  std::vector<Bits> host_;
};

Status run(const NarrowCase& of, Device device, Communicator& communicator, Outcome& outcome) {
  AggregatorOptions options{.compressor = of.spec};
  options.form = of.form;
  options.bucket_bytes = 6000;  // each matrix is in one of its own
  options.algorithm = "canonical";
  GW_ASSIGN(auto aggregator,
            Aggregator::create(communicator, Registry::builtin(), std::move(options)));
  GW_ASSIGN(const auto gradients, Narrow::make(device, of.dtype));
  for (std::size_t t = 0; t < shapes().size(); ++t) {
    GW_TRY(aggregator->add("tensor" + std::to_string(t), gradients->view(t)));
  }
  for (int step = 0; step < kSteps; ++step) {
    if (of.scale != 1) GW_TRY(aggregator->set_narrow_scale(of.scale));
    for (std::size_t t = shapes().size(); t-- > 0;) {
      GW_TRY(gradients->write(t, communicator.rank(), step, of.scale));
      GW_TRY(aggregator->ready(static_cast<int>(t), gradients->stream()));
    }
    GW_TRY(aggregator->finish(gradients->stream()));
    for (std::size_t t = 0; t < shapes().size(); ++t) {
      GW_ASSIGN(Bits mean, gradients->read(t));
      outcome.means.push_back(std::move(mean));
    }
  }
  for (const NamedTensor& entry : aggregator->state()) {
    const auto bytes = entry.tensor.bytes();
    outcome.state[entry.name] = {bytes.begin(), bytes.end()};
  }
  return {};
}

std::vector<Outcome> outcomes_of(const NarrowCase& of, Device device) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(of.ranks));
  const auto statuses = on_ranks(of.ranks, [&](std::unique_ptr<Communicator>& communicator) {
    return run(of, device, *communicator, outcomes[static_cast<std::size_t>(communicator->rank())]);
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return outcomes;
}

class NarrowOnDevice : public ::testing::TestWithParam<NarrowCase> {};

TEST_P(NarrowOnDevice, MeansAndStateHaveTheHostsBits) {
  const std::vector<Outcome> here = outcomes_of(GetParam(), {});
  const std::vector<Outcome> there = outcomes_of(GetParam(), kFirstDevice);
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    EXPECT_EQ(here[rank].means.size(), kSteps * shapes().size());
    EXPECT_TRUE(here[rank].means == there[rank].means) << "rank " << rank;
    EXPECT_TRUE(here[rank].state == there[rank].state) << "rank " << rank;
  }
}

// Methods that work in fp32, and those that add 16 bits as they are, with and without a loss scale.
std::vector<NarrowCase> cases() {
  std::vector<NarrowCase> all;
  for (const std::string spec :
       {"none", "none:combine=gather,min_elems=0", "cast:bf16", "topk:ratio=0.1,ef=ef14",
        "qsgd:bits=4,ef=ef14", "signsgd:ef=ef14,combine=gather", "powersgd:rank=2,ef=ef14",
        "topk:ratio=0.1,combine=oktopk,ef=ef14"}) {
    all.push_back({spec, DType::kBF16, 2});
    all.push_back({spec, DType::kF16, 3, 8192});
    if (!is_short_run()) all.push_back({spec, DType::kF16, 1});
    if (!is_short_run()) all.push_back({spec, DType::kBF16, 4, 64});
  }
  all.push_back({"none", DType::kF16, 3, 8, AggregateForm::kReduceScatter});
  all.push_back({"qsgd:bits=4,ef=ef14", DType::kBF16, 2, 1, AggregateForm::kReduceScatter});
  all.push_back({"qsgd:bits=4", DType::kF16, 3, 8, AggregateForm::kAllGather});
  return all;
}

std::string name_of_case(const ::testing::TestParamInfo<NarrowCase>& info) {
  const NarrowCase& of = info.param;
  std::string name = std::string(to_string(of.dtype)) + "_" + std::to_string(of.ranks) + "_ranks_" +
                     "form" + std::to_string(static_cast<int>(of.form)) + "_";
  for (const char c : of.spec) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Specs, NarrowOnDevice, ::testing::ValuesIn(cases()), name_of_case);

}  // namespace
}  // namespace gradwire::testing::narrow_aggregate_test
