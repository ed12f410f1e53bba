// A method of a user's own whose rounds combine in three ways: the leader of the step says where
// (gathered, of varying length), all ranks say how large (maximum), and what stands there is added,
// in as many bytes as the leader's choice asks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/support/aggregate_job.h"

namespace gradwire::testing::mixed_rounds_test {
namespace {

using ::testing::ElementsAre;

// Sends the elements that are positive on the leader, divided by the largest magnitude of all
// ranks.
class LeaderCoder final : public Coder {
 public:
  LeaderCoder(std::int64_t elems, int rank, int size)
      : elems_(static_cast<std::size_t>(elems)), rank_(rank), size_(size) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    grad_ = elements<float>(grad);
    leader_ = static_cast<int>(step % static_cast<std::uint64_t>(size_));
    return {};
  }
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    std::vector<float> values;
    if (round == 0) {
      std::size_t count = 0;
      for (std::size_t i = 0; i < elems_ && rank_ == leader_; ++i) {
        if (grad_[i] > 0) payload[count++] = static_cast<std::byte>(i);
      }
      return count;
    }
    if (round == 1) {
      values.push_back(0);
      for (const float x : grad_) values[0] = std::max(values[0], std::abs(x));
    } else {
      for (const std::size_t i : places_) values.push_back(grad_[i] / largest_);
    }
    if (!values.empty()) std::memcpy(payload.data(), values.data(), 4 * values.size());
    return 4 * values.size();
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    if (round == 0) {
      EXPECT_EQ(payloads.size(), static_cast<std::size_t>(size_));
      places_.clear();
      for (const std::byte b : payloads[static_cast<std::size_t>(leader_)]) {
        places_.push_back(std::to_integer<std::size_t>(b));
      }
      return {};
    }
    EXPECT_EQ(payloads.size(), 1u);
    if (round == 1) {
      std::memcpy(&largest_, payloads[0].data(), 4);
      return {};
    }
    sums_.resize(places_.size());
    EXPECT_EQ(payloads[0].size(), 4 * sums_.size());
    if (!sums_.empty()) std::memcpy(sums_.data(), payloads[0].data(), 4 * sums_.size());
    return {};
  }
  Status finish(TensorView mean, TensorView own, const Stream&) override {
    const std::vector<float> grad(grad_.begin(), grad_.end());  // mean may be its memory
    const auto out = elements<float>(mean);
    std::fill(out.begin(), out.end(), 0.0F);
    for (std::size_t j = 0; j < places_.size(); ++j) {
      out[places_[j]] = sums_[j] * largest_ / static_cast<float>(size_);
    }
    if (own.empty()) return {};
    for (float& x : elements<float>(own)) x = 0;
    for (const std::size_t i : places_) elements<float>(own)[i] = grad[i];
    return {};
  }
  std::vector<NamedTensor> state() override { return {}; }

 private:
  std::size_t elems_;
  int rank_;
  int size_;
  int leader_ = 0;
  std::span<const float> grad_;
  std::vector<std::size_t> places_;
  float largest_ = 0;
  std::vector<float> sums_;
};

class Leader final : public Compressor {
 public:
  std::string spec() const override { return "leader"; }
  Traits traits() const override {
    return {.exchange = Exchange::kAllReduceSum,
            .rounds = 3,
            .payload_dtype = DType::kF32,
            .fixed_payload = false};
  }
  RoundKind round_kind(int round, DType dtype, int) const override {
    if (round == 0) return {Exchange::kAllGather, DType::kU8, false};
    if (round == 1) return {Exchange::kAllReduceMax, DType::kF32, true};
    return {Exchange::kAllReduceSum, dtype, false};
  }
  ErrorBound bound(const Shape&) const override { return {ErrorBound::Kind::kContraction, 0}; }
  std::size_t max_payload_bytes(const Shape& shape, DType, int round, int) const override {
    const auto elems = static_cast<std::size_t>(shape.elems());
    return round == 0 ? elems : round == 1 ? 4 : 4 * elems;
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    return std::unique_ptr<Coder>(
        std::make_unique<LeaderCoder>(shape.elems(), where.rank, where.size));
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported, "leader is not elementwise");
  }
};

Job leader_job(const std::string& more) {
  Job job;
  job.compressor = "w*=leader:min_elems=0" + more + ";*=none";
  job.tensors = {
      {"w1", Shape::matrix(2, 2)}, {"bias", Shape::vector(3)}, {"w2", Shape::matrix(1, 2)}};
  job.ranks = 3;
  job.steps = 3;
  job.registry = [](int) {
    Registry registry = Registry::builtin();
    EXPECT_TRUE(registry
                    .add({"leader",
                          "where the leader is positive",
                          "",
                          {},
                          [](const Spec&) -> Result<std::unique_ptr<Compressor>> {
                            return std::unique_ptr<Compressor>(std::make_unique<Leader>());
                          }})
                    .ok());
    return registry;
  };
  // Rank r is positive at elements 0 ... r of a tensor, and sends 2^r there; else -1.
  job.gradient = [](const std::string& tensor, int rank, int, std::int64_t e) {
    if (tensor == "bias") return 1.0F;
    return e <= rank ? static_cast<float>(1 << rank) : -1.0F;
  };
  return job;
}

TEST(MixedRounds, EachRoundGoesTheWayOfItsKind) {
  for (const std::string combine : {"", ",combine=sum", ",combine=gather"}) {
    SCOPED_TRACE(combine);
    const JobOutcome outcome = run_job(leader_job(combine));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.first_difference, -1);
    // Sums at elements 0, 1, 2: 1 + 2 + 4, -1 + 2 + 4, -1 - 1 + 4.
    const auto third = [](float sum) { return ::testing::FloatEq(sum / 3); };
    EXPECT_THAT(outcome.means[0], ElementsAre(third(7), 0, 0, 0, 1, 1, 1, third(7), 0));
    EXPECT_THAT(outcome.means[1],
                ElementsAre(third(7), third(5), 0, 0, 1, 1, 1, third(7), third(5)));
    EXPECT_THAT(outcome.means[2],
                ElementsAre(third(7), third(5), third(2), 0, 1, 1, 1, third(7), third(5)));
  }
}

TEST(MixedRounds, PayloadsAreAsLongAsTheStepAsksFor) {
  const JobOutcome outcome = run_job(leader_job(""));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  // Third step, led by rank 2: 3 and 2 places from it alone, one scale and the values from all; and
  // three dense elements.
  EXPECT_EQ(outcome.stats_of_last_step[2].payload_bytes, 5u + 8u + 20u + 12u);
  EXPECT_EQ(outcome.stats_of_last_step[0].payload_bytes, 0u + 8u + 20u + 12u);
}

TEST(MixedRounds, ErrorFeedbackStaysAroundThem) {
  Job job = leader_job(",ef=ef14");
  job.steps = 9;
  const JobOutcome outcome = run_job(job);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  std::vector<double> kept = average_residual(job, outcome);
  for (std::size_t e = 0; e < kept.size(); ++e) {
    EXPECT_NEAR(kept[e] + outcome.sum_of_means[e], outcome.sum_of_averages[e], 1e-5) << e;
  }
}

}  // namespace
}  // namespace gradwire::testing::mixed_rounds_test
