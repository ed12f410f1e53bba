// Methods of a user's own whose payloads have a length that only their sender knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::variable_payload_test {
namespace {

using ::testing::ElementsAre;

struct Entry {
  std::uint32_t index;
  float value;
};

// Sends the elements of magnitude 1 or more, as (index, value) pairs.
class ThresholdCoder final : public Coder {
 public:
  ThresholdCoder(std::int64_t elems, int size) : elems_(elems), size_(size) {}
  Status begin(ConstTensorView grad, std::uint64_t, const Stream&) override {
    grad_ = elements<float>(grad);
    return {};
  }
  Result<std::size_t> encode(int, ByteSpan payload, const Stream&) override {
    std::size_t end = 0;
    for (std::size_t i = 0; i < grad_.size(); ++i) {
      if (std::abs(grad_[i]) < 1) continue;
      const Entry entry{static_cast<std::uint32_t>(i), grad_[i]};
      std::memcpy(payload.data() + end, &entry, sizeof(entry));
      end += sizeof(entry);
    }
    return end;
  }
  Status absorb(int, std::span<const ConstByteSpan> payloads, const Stream&) override {
    sum_.assign(static_cast<std::size_t>(elems_), 0.0F);
    for (ConstByteSpan rest : payloads) {
      for (; !rest.empty(); rest = rest.subspan(sizeof(Entry))) {
        Entry entry{};
        std::memcpy(&entry, rest.data(), sizeof(entry));
        if (entry.index >= sum_.size()) return {Code::kCorruptPayload, "index"};
        sum_[entry.index] += entry.value;
      }
    }
    return {};
  }
  Status finish(TensorView mean, TensorView own, const Stream&) override {
    for (std::size_t i = 0; i < sum_.size(); ++i) {
      if (!own.empty()) elements<float>(own)[i] = std::abs(grad_[i]) < 1 ? 0.0F : grad_[i];
      elements<float>(mean)[i] = sum_[i] / static_cast<float>(size_);
    }
    return {};
  }
  std::vector<NamedTensor> state() override { return {}; }

 private:
  std::int64_t elems_;
  int size_;
  std::span<const float> grad_;
  std::vector<float> sum_;
};

// `most`: how many pairs it claims to send at most; 0 for as many as there are elements.
class Threshold final : public Compressor {
 public:
  explicit Threshold(std::size_t most) : most_(most) {}
  std::string spec() const override { return "above"; }
  Traits traits() const override { return {.fixed_payload = false}; }
  ErrorBound bound(const Shape&) const override { return {ErrorBound::Kind::kContraction, 0}; }
  std::size_t max_payload_bytes(const Shape& shape, DType, int, int) const override {
    return sizeof(Entry) * (most_ == 0 ? static_cast<std::size_t>(shape.elems()) : most_);
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    return std::unique_ptr<Coder>(std::make_unique<ThresholdCoder>(shape.elems(), where.size));
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported, "above is not elementwise");
  }

 private:
  std::size_t most_;
};

template <std::size_t kMost>
Result<std::unique_ptr<Compressor>> make_threshold(const Spec&) {
  return std::unique_ptr<Compressor>(std::make_unique<Threshold>(kMost));
}

Registry with_threshold(Registry::Factory factory) {
  Registry registry = Registry::builtin();
  EXPECT_TRUE(registry.add({"above", "large elements", "", {}, factory}).ok());
  return registry;
}

// Two tensors of four; rank 1 has something to send in the second only.
Job threshold_job() {
  Job job;
  job.compressor = "above:min_elems=0,ef=ef14";
  job.tensors = {{"a", Shape::matrix(2, 2)}, {"b", Shape::matrix(2, 2)}};
  job.ranks = 2;
  job.steps = 2;
  job.registry = [](int) { return with_threshold(make_threshold<0>); };
  job.gradient = [](const std::string& tensor, int rank, int, std::int64_t e) {
    if (tensor == "a") return rank == 0 ? static_cast<float>(e) : 0.5F;
    return rank == 0 ? 0.25F : 2.0F;
  };
  return job;
}

TEST(VariablePayload, TravelsWithItsLength) {
  const JobOutcome outcome = run_job(threshold_job());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.first_difference, -1);
  EXPECT_THAT(outcome.means[0], ElementsAre(0, 0.5F, 1, 1.5F, 1, 1, 1, 1));
  // Rank 1's halves of a have become ones.
  EXPECT_THAT(outcome.means[1], ElementsAre(0.5F, 1, 1.5F, 2, 1, 1, 1, 1));
  // Step 2: rank 0 sends 3 pairs of a and none of b, rank 1 sends 4 and 4.
  EXPECT_EQ(outcome.stats_of_last_step[0].payload_bytes, 3 * sizeof(Entry));
  EXPECT_EQ(outcome.stats_of_last_step[1].payload_bytes, 8 * sizeof(Entry));
  // On the wire: the length of the block (8 bytes), a table of two lengths, the payload.
  EXPECT_EQ(outcome.stats_of_last_step[0].wire_bytes, 8 + 8 + 3 * sizeof(Entry));
  EXPECT_EQ(outcome.stats_of_last_step[1].wire_bytes, 8 + 8 + 8 * sizeof(Entry));
}

// Claims of 5.6 GB a tensor: lengths that a table of 32 bits would cut are carried in 64, and
// memory that payloads might take is not touched.
TEST(VariablePayload, ClaimsOf4GiBAndMoreAreCarried) {
  Job job = threshold_job();
  job.registry = [](int) { return with_threshold(make_threshold<700'000'000>); };
  const JobOutcome outcome = run_job(job);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.first_difference, -1);
  EXPECT_THAT(outcome.means[1], ElementsAre(0.5F, 1, 1.5F, 2, 1, 1, 1, 1));
  // The length of the block (8 bytes), a table of two lengths of 8 bytes, 3 pairs.
  EXPECT_EQ(outcome.stats_of_last_step[0].wire_bytes, 8 + 16 + 3 * sizeof(Entry));
}

TEST(VariablePayload, ALengthBeyondTheMethodsClaimIsCorrupt) {
  Job job = threshold_job();
  // Rank 0 believes in at most 3 pairs; rank 1 sends 4.
  job.registry = [](int rank) {
    return with_threshold(rank == 0 ? make_threshold<3> : make_threshold<0>);
  };
  job.gradient = [](const std::string&, int rank, int, std::int64_t) {
    return rank == 0 ? 0.0F : 2.0F;
  };
  const JobOutcome outcome = run_job(job);
  EXPECT_THAT(outcome.status, fails(Code::kCorruptPayload, "rank 1", "'a'", "32 bytes", "24"));
}

}  // namespace
}  // namespace gradwire::testing::variable_payload_test
