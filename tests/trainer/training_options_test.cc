// What the training loop refuses before it starts.
#include "trainer/training_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/support/fails.h"
#include "tests/trainer/test_strategies.h"
#include "tests/trainer/training_problems.h"
#include "trainer/training.h"

namespace gradwire::training_options_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

TEST(Training, RefusesBadOptions) {
  const auto refusal = [](auto change) {
    TrainingOptions options;
    change(options);
    const auto made = Trainer::create(mlp(), digits(), options);
    return made.has_value() ? Status() : made.error();
  };
  using O = TrainingOptions;
  EXPECT_THAT(refusal([](O& o) { o.batch = 100, o.ranks = 4, o.accumulate = 2; }),
              fails(kInvalid, "batch 100", "8", "4 ranks", "2 micro-batches"));
  EXPECT_THAT(refusal([](O& o) { o.batch = 0; }), fails(kInvalid, "batch 0"));
  EXPECT_THAT(refusal([](O& o) { o.batch = 1438; }), fails(kInvalid, "batch 1438", "1437"));
  EXPECT_THAT(refusal([](O& o) { o.rank = 1; }), fails(kInvalid, "rank 1", "0"));
  EXPECT_THAT(refusal([](O& o) { o.ranks = 0; }), fails(kInvalid, "ranks 0"));
  EXPECT_THAT(refusal([](O& o) { o.accumulate = 0; }), fails(kInvalid, "accumulate 0"));
  EXPECT_THAT(refusal([](O& o) { o.steps = -1; }), fails(kInvalid, "steps -1"));
  EXPECT_THAT(refusal([](O& o) { o.epochs = -1; }), fails(kInvalid, "epochs -1"));
  EXPECT_THAT(refusal([](O& o) { o.eval_every = -2; }), fails(kInvalid, "eval-every -2"));
  EXPECT_THAT(refusal([](O& o) { o.lr = std::nan(""); }), fails(kInvalid, "lr nan"));
  EXPECT_THAT(refusal([](O& o) { o.momentum = 1; }), fails(kInvalid, "momentum 1"));
  EXPECT_THAT(refusal([](O& o) { o.clip = -1; }), fails(kInvalid, "clip -1"));
  EXPECT_THAT(refusal([](O& o) { o.clip_worker = std::nan(""); }),
              fails(kInvalid, "clip-worker nan"));
  EXPECT_THAT(refusal([](O& o) { o.optimizer.name = "adam"; }), fails(kInvalid, "adam"));
  EXPECT_THAT(refusal([](O& o) {
                o.optimizer.name = "nesterov";
                o.momentum_at = MomentumAt::kWorker;
              }),
              fails(kInvalid, "nesterov", "momentum", "worker"));
  EXPECT_THAT(refusal([](O& o) {
                o.loss_scale.initial = 8;
                o.momentum_at = MomentumAt::kWorker;
              }),
              fails(kInvalid, "loss scale", "momentum", "worker"));
  TrainingOptions clips;
  clips.clip = 1;
  Demands demands;
  demands.own_optimizer = true;
  const auto clipped = Trainer::create(mlp(), digits(), clips, demands);
  ASSERT_FALSE(clipped.has_value());
  EXPECT_THAT(clipped.error(), fails(kInvalid, "clip 1", "optimizer", "clip-worker"));
  const auto wrong = make_model<float>({"mlp", {}}, {1, 4, 4}, 10);
  const auto made = Trainer::create(wrong.value(), digits(), {});
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error(), fails(kInvalid, "16 inputs", "64"));
}

// A strategy says what it needs once: before the trainer takes memory. Others are not run.
TEST(Training, RefusesAStrategyWithOtherDemands) {
  class Demanding final : public OwnStrategy {
   public:
    explicit Demanding(const Demands& demands) : demands_(demands) {}
    Demands demands() const override { return demands_; }

   private:
    Demands demands_;
  };
  const auto refusal = [](auto change) {
    auto trainer = Trainer::create(mlp(), digits(), {});
    EXPECT_TRUE(trainer.has_value());
    Demands demands;
    change(demands);
    Demanding strategy(demands);
    const auto ran = trainer.value().run(strategy, nullptr);
    return ran.has_value() ? Status() : ran.error();
  };
  using D = Demands;
  EXPECT_THAT(refusal([](D& d) { d.own_optimizer = true; }),
              fails(kInvalid, "own optimizer: yes", "expected no"));
  EXPECT_THAT(refusal([](D& d) { d.clips = true; }), fails(kInvalid, "clips: yes", "no"));
  EXPECT_THAT(refusal([](D& d) { d.layer_by_layer = true; }),
              fails(kInvalid, "layer by layer: yes", "no"));
  EXPECT_THAT(refusal([](D& d) { d.gradients_pass = true; }),
              fails(kInvalid, "tensor by tensor: yes", "no"));
  EXPECT_THAT(refusal([](D& d) { d.tells_arrival = false; }),
              fails(kInvalid, "arrived gradients: no", "yes"));
  EXPECT_THAT(refusal([](D& d) { d.takes_narrow = false; }), fails(kInvalid, "16 bits: no", "yes"));
  EXPECT_THAT(refusal([](D& d) { d.takes_scaled = false; }),
              fails(kInvalid, "loss scale: no", "yes"));
  EXPECT_THAT(refusal([](D& d) { d.holds_master = true; }),
              fails(kInvalid, "for itself: yes", "no"));
}

}  // namespace
}  // namespace gradwire::training_options_test
