// What the training loop refuses before it starts.
#include "trainer/training_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/trainer/training_problems.h"
#include "trainer/training.h"

namespace gradwire {
namespace {

using testing::HasSubstr;

TEST(Training, RefusesBadOptions) {
  const auto message = [](auto change) {
    TrainingOptions options;
    change(options);
    const auto made = Trainer::create(mlp(), digits(), options);
    return made.has_value() ? std::string() : std::string(made.error().message());
  };
  using O = TrainingOptions;
  EXPECT_EQ(message([](O& o) { o.batch = 100, o.ranks = 4, o.accumulate = 2; }),
            "batch 100; a positive multiple of 8 (4 ranks x 2 micro-batches) wanted");
  EXPECT_THAT(message([](O& o) { o.batch = 0; }), HasSubstr("batch 0"));
  EXPECT_THAT(message([](O& o) { o.batch = 1438; }), HasSubstr("at most 1437"));
  EXPECT_THAT(message([](O& o) { o.rank = 1; }), HasSubstr("rank 1; 0 to 0 wanted"));
  EXPECT_THAT(message([](O& o) { o.ranks = 0; }), HasSubstr("ranks 0"));
  EXPECT_THAT(message([](O& o) { o.accumulate = 0; }), HasSubstr("accumulate 0"));
  EXPECT_THAT(message([](O& o) { o.steps = -1; }), HasSubstr("steps -1"));
  EXPECT_THAT(message([](O& o) { o.epochs = -1; }), HasSubstr("epochs -1"));
  EXPECT_THAT(message([](O& o) { o.eval_every = -2; }), HasSubstr("eval-every -2"));
  EXPECT_THAT(message([](O& o) { o.lr = std::nan(""); }), HasSubstr("lr nan"));
  EXPECT_THAT(message([](O& o) { o.momentum = 1; }), HasSubstr("momentum 1"));
  EXPECT_THAT(message([](O& o) { o.clip = -1; }), HasSubstr("clip -1"));
  EXPECT_THAT(message([](O& o) { o.clip_worker = std::nan(""); }), HasSubstr("clip-worker nan"));
  EXPECT_THAT(message([](O& o) { o.optimizer.name = "adam"; }), HasSubstr("'adam'"));
  EXPECT_THAT(message([](O& o) { o.optimizer.name = "hook", o.clip = 1; }),
              HasSubstr("clip 1 with"));
  EXPECT_THAT(message([](O& o) {
                o.optimizer.name = "nesterov";
                o.momentum_at = MomentumAt::kWorker;
              }),
              HasSubstr("nesterov with momentum at the worker"));
  EXPECT_THAT(message([](O& o) {
                o.loss_scale.initial = 8;
                o.momentum_at = MomentumAt::kWorker;
              }),
              HasSubstr("a loss scale with momentum at the worker"));
  const auto wrong = make_model<float>({"mlp", {}}, {1, 4, 4}, 10);
  const auto made = Trainer::create(wrong.value(), digits(), {});
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(std::string(made.error().message()), HasSubstr("16 inputs"));
}

}  // namespace
}  // namespace gradwire
