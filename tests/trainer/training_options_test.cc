// What the training loop refuses before it starts.
#include "trainer/training_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/support/fails.h"
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
  EXPECT_THAT(refusal([](O& o) { o.optimizer.name = "hook", o.clip = 1; }),
              fails(kInvalid, "clip 1", "optimizer", "clip-worker"));
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
  const auto wrong = make_model<float>({"mlp", {}}, {1, 4, 4}, 10);
  const auto made = Trainer::create(wrong.value(), digits(), {});
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error(), fails(kInvalid, "16 inputs", "64"));
}

}  // namespace
}  // namespace gradwire::training_options_test
