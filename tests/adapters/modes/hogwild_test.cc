// Lock-free training of shared parameters.
#include "adapters/trainer/modes/hogwild.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/adapters/modes/toy_source.h"

namespace gradwire::testing::hogwild_test {
namespace {

// P4: one thread is plain descent.
TEST(Hogwild, P4_OneThreadIsSerialBitForBit) {
  for (const float momentum : {0.0F, 0.5F}) {
    std::vector<float> wanted = toy_start();
    std::vector<float> m(kToyElems, 0.0F);
    std::vector<float> g(kToyElems);
    ToySource source(0);
    for (std::int64_t t = 0; t < 40; ++t) {
      ASSERT_TRUE(source.gradient(wanted, t, g).has_value());
      for (std::size_t i = 0; i < kToyElems; ++i) {
        m[i] = momentum > 0 ? momentum * m[i] + g[i] : g[i];
        wanted[i] -= 0.05F * m[i];
      }
    }
    std::vector<float> shared = toy_start();
    std::vector<GradientSource*> sources{&source};
    std::int64_t told = 0;
    const ModeOptions options{.steps = 40, .lr = 0.05, .momentum = momentum};
    const Status status = run_hogwild(sources, options, shared, {}, [&](const ModeStep& step) {
      EXPECT_EQ(step.step, told++);
      EXPECT_EQ(step.params.size(), kToyElems);
      return Status();
    });
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(shared, wanted);
    EXPECT_EQ(told, 40);
  }
}

// Logistic regression whose samples have few features each: convex, and threads seldom meet.
constexpr std::size_t kFeatures = 400;
constexpr std::int64_t kSamples = 3000;
constexpr int kNonZero = 8;

struct Sample {
  std::vector<std::size_t> at;
  std::vector<float> value;
  float label;  // -1, 1
};
const std::vector<Sample>& samples() {
  static const std::vector<Sample> kAll = [] {
    std::vector<Sample> all;
    for (std::int64_t s = 0; s < kSamples; ++s) {
      const RandomStream draws(11, RandomUse::kTest, 2, 0, 0, static_cast<std::uint64_t>(s));
      Sample sample;
      float margin = 0;
      for (int k = 0; k < kNonZero; ++k) {
        const auto e = static_cast<std::uint64_t>(k);
        sample.at.push_back(draws.word(e) % kFeatures);
        sample.value.push_back(2 * draws.uniform(100 + e) - 1);
        margin += sample.value.back() * 6 * toy_draw(42, 0, sample.at.back());
      }
      const bool flipped = draws.uniform(200) < 0.05F;
      sample.label = (margin > 0) != flipped ? 1.0F : -1.0F;
      all.push_back(std::move(sample));
    }
    return all;
  }();
  return kAll;
}
double margin_of(const Sample& sample, std::span<const float> w) {
  double margin = 0;
  for (std::size_t k = 0; k < sample.at.size(); ++k) {
    margin += static_cast<double>(sample.value[k]) * w[sample.at[k]];
  }
  return sample.label * margin;
}
double logistic_loss(std::span<const float> w) {
  double loss = 0;
  for (const Sample& sample : samples()) loss += std::log1p(std::exp(-margin_of(sample, w)));
  return loss / static_cast<double>(kSamples);
}

// Every thread passes over the whole set, each from a place of its own: whichever of them a busy
// machine lets run first, no thread's last updates are of half the samples alone.
class Logistic final : public GradientSource {
 public:
  Logistic(int thread, int threads) : thread_(thread), threads_(threads) {}
  const ParameterTable& parameters() const override { return toy_table(); }
  Result<double> gradient(std::span<const float> w, std::int64_t step,
                          std::span<float> grads) override {
    for (float& g : grads) g = 0;
    const std::int64_t s = (step + thread_ * kSamples / threads_) % kSamples;
    const Sample& sample = samples()[static_cast<std::size_t>(s)];
    const double margin = margin_of(sample, w);
    const auto slope = static_cast<float>(-sample.label / (1 + std::exp(margin)));
    for (std::size_t k = 0; k < sample.at.size(); ++k) {
      grads[sample.at[k]] += slope * sample.value[k];
    }
    return std::log1p(std::exp(-margin));
  }

 private:
  int thread_;
  int threads_;
};

double trained(int threads, std::int64_t updates) {
  std::vector<std::unique_ptr<Logistic>> own;
  std::vector<GradientSource*> sources;
  for (int i = 0; i < threads; ++i) {
    own.push_back(std::make_unique<Logistic>(i, threads));
    sources.push_back(own.back().get());
  }
  std::vector<float> w(kFeatures, 0.0F);
  EXPECT_TRUE(run_hogwild(sources, {.steps = updates / threads, .lr = 0.3}, w, {}, {}).ok());
  return logistic_loss(w);
}

TEST(Hogwild, P4_SparseLogisticRegressionOfTwoThreadsReachesTheSerialLoss) {
  constexpr std::int64_t kUpdates = 12'000;
  const double start = std::log(2.0);
  const double serial = trained(1, kUpdates);
  const double together = trained(2, kUpdates * 12 / 10);
  RecordProperty("serial_loss", std::to_string(serial));
  RecordProperty("two_threads_loss", std::to_string(together));
  EXPECT_LT(serial, 0.75 * start);
  EXPECT_LE(together, 1.02 * serial);
}

// A dense toy: both threads take 1 from every element at the same time, again and again.
TEST(Hogwild, P4_DenseUpdatesGetLostAndTheNumberIsReported) {
  std::vector<float> shared(20'000, 0.0F);
  const std::vector<float> minus_one(shared.size(), -1.0F);
  constexpr int kPasses = 200;   // of a round, so that threads meet on a busy machine too
  constexpr int kRounds = 1000;  // at most: 2 x 200 x 1000 is a whole number in a float
  double lost = 0;
  int rounds = 0;
  std::barrier meet(2, [&]() noexcept {
    lost = 0;
    for (const float x : shared) lost += 2.0 * kPasses * rounds - static_cast<double>(x);
    ++rounds;
  });
  const auto program = [&] {
    for (int i = 0; i < kRounds; ++i) {
      meet.arrive_and_wait();
      if (lost > 0) return;
      for (int pass = 0; pass < kPasses; ++pass) hogwild_descend(shared, minus_one, 1.0F);
    }
  };
  {
    const std::jthread one(program);
    const std::jthread other(program);
  }
  const double all = 2.0 * kPasses * (rounds - 1) * static_cast<double>(shared.size());
  RecordProperty("lost_updates", std::to_string(lost));
  std::printf("lost updates: %.0f of %.0f\n", lost, all);
  EXPECT_GT(lost, 0);
}

TEST(Hogwild, TheFirstErrorEndsAllThreads) {
  class Failing final : public ToySource {
   public:
    using ToySource::ToySource;
    Result<double> gradient(std::span<const float> params, std::int64_t step,
                            std::span<float> grads) override {
      if (worker() == 1 && step == 3) return Status(Code::kInternal, "no gradient");
      return ToySource::gradient(params, step, grads);
    }
  };
  Failing a(0);
  Failing b(1);
  std::vector<GradientSource*> sources{&a, &b};
  std::vector<float> shared = toy_start();
  const Status status = run_hogwild(sources, {.steps = 1'000'000'000, .lr = 0.01}, shared, {}, {});
  EXPECT_EQ(status.message(), "no gradient");
}

}  // namespace
}  // namespace gradwire::testing::hogwild_test
