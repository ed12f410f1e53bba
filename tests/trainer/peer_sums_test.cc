// Parts of a gradient are added up among ranks before anything of it is rounded, and once.
#include "trainer/step/peer_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/elements.h"
#include "trainer/layer_peers.h"
#include "trainer/step/step_gradients.h"

namespace gradwire::peer_sums_test {
namespace {

// Another rank, whose part of every element is `part`.
class OnePeer final : public LayerPeers {
 public:
  explicit OnePeer(float part) : part_(part) {}
  int ranks() const override { return 2; }
  int rank() const override { return 0; }
  void await() override {}
  Status status() const override { return {}; }
  int sums() const { return sums_; }

 private:
  void sum(ByteSpan values, DType type) override {
    ASSERT_EQ(type, DType::kF32);
    ++sums_;
    const std::span<float> all(reinterpret_cast<float*>(values.data()),
                               values.size() / sizeof(float));
    for (float& value : all) value += part_;
  }
  void max(ByteSpan, DType) override { FAIL(); }
  void gather(ConstByteSpan, ByteSpan, DType) override { FAIL(); }
  void scatter_sum(ConstByteSpan, ByteSpan, DType) override { FAIL(); }
  void exchange(std::span<const Bytes>, DType) override { FAIL(); }

  float part_;
  int sums_ = 0;
};

// Parameter 0 is summed, parameter 1 is not.
GradientTable table() {
  GradientTable made;
  made.tensors = {{"a", Shape::vector(2), 1, 0}, {"b", Shape::vector(2), 1, 2}};
  made.tensors[0].summed = true;
  return made;
}

struct Case {
  int accumulate = 1;
  bool main_gradients = true;
  MomentumAt momentum_at = MomentumAt::kServer;
  bool each = false;
  int sums = 1;  // that a step is expected to make
};

// The step's gradient where every micro-batch gives `own` on this rank and `others` on the peer.
std::vector<float> gradient(const Case& of, Precision precision, float own, float others) {
  TrainingOptions options;
  options.accumulate = of.accumulate;
  options.batch = of.accumulate;
  options.precision = precision;
  options.main_gradients = of.main_gradients;
  options.momentum_at = of.momentum_at;
  Demands demands;
  demands.takes_narrow = true;
  demands.each_micro_batch = of.each;
  auto made = GradientFold::create(table(), options, demands);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  GradientFold& fold = made.value();
  OnePeer peer(others);
  const GradientTable all = table();
  const PeerSums sums(all.tensors, &peer);
  fold.begin_step();
  for (int micro = 0; micro < of.accumulate; ++micro) {
    const auto grads = fold.begin(micro);
    EXPECT_TRUE(grads.has_value());
    std::ranges::fill(grads.value(), own);
    for (int index = 1; index >= 0; --index) {
      EXPECT_TRUE(sums.add_micro_batch(fold, index, micro).ok());
      const auto done = fold.ready(index, micro);
      EXPECT_TRUE(done.has_value());
      if (!done.value()) continue;
      EXPECT_TRUE(sums.add(fold, index).ok());
      EXPECT_TRUE(fold.hand_over(index).has_value());
    }
    EXPECT_TRUE(fold.micro_batch_done(micro, 1).ok());
    EXPECT_TRUE(fold.add_up(micro).ok());
  }
  EXPECT_EQ(peer.sums(), of.sums);
  auto handed = StepGradients::create({}, fold.outcome());
  EXPECT_TRUE(handed.has_value());
  handed.value().begin_step(1);
  std::vector<float> values(4);
  EXPECT_TRUE(handed.value().read(0, values).ok());
  return values;
}

// bf16 has 1 and 1 + 2^-7 and nothing between them: of a part that lies halfway the half is lost
// where it is rounded by itself.
TEST(PeerSums, RoundTheWhole) {
  const float half = std::ldexp(1.0F, -8);
  for (const Case& of : {Case{}, Case{.each = true}, Case{.accumulate = 2, .sums = 2},
                         Case{.accumulate = 2, .main_gradients = false, .sums = 2}}) {
    EXPECT_EQ(gradient(of, Precision::kBF16, 1 + half, half),
              (std::vector<float>{1 + 2 * half, 1 + 2 * half, 1, 1}))
        << of.accumulate;
  }
}

// Once a step; where each micro-batch is handed over, or taken into a momentum, once for each.
TEST(PeerSums, AreMadeOnce) {
  const std::vector<float> both{8, 8, 3, 3};
  for (const Case& of :
       {Case{}, Case{.accumulate = 4}, Case{.accumulate = 4, .each = true, .sums = 4},
        Case{.accumulate = 4, .momentum_at = MomentumAt::kWorker, .sums = 4}}) {
    EXPECT_EQ(gradient(of, Precision::kF32, 3, 5), both) << of.accumulate << " " << of.sums;
  }
  EXPECT_EQ(gradient({.accumulate = 4, .sums = 4}, Precision::kBF16, 3, 5), both);
}

}  // namespace
}  // namespace gradwire::peer_sums_test
