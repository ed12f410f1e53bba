// Residuals follow what changes outside: learning rates, loss scales, steps that are left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/elements.h"
#include "compress/error_feedback/stored_residual.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::follow_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

using ::testing::ElementsAre;

// An aggregator of one 2 x 2 gradient "w" on one rank.
class One {
 public:
  One(Communicator& communicator, const std::string& method, const std::string& keys) {
    AggregatorOptions options;
    options.compressor = method + ",min_elems=0," + keys;
    auto made = Aggregator::create(communicator, Registry::builtin(), options);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    aggregator_ = std::move(made).value();
    EXPECT_TRUE(aggregator_
                    ->add("w", {reinterpret_cast<std::byte*>(grad_.data()), Shape::matrix(2, 2),
                                DType::kF32})
                    .ok());
  }
  Aggregator& operator*() { return *aggregator_; }
  Aggregator* operator->() { return aggregator_.get(); }

  // The mean.
  std::vector<float> step(const std::vector<float>& grad) {
    std::copy(grad.begin(), grad.end(), grad_.begin());
    EXPECT_TRUE(aggregator_->ready(0).ok());
    EXPECT_TRUE(aggregator_->finish().ok());
    return {grad_.begin(), grad_.end()};
  }
  std::vector<double> entry(const std::string& name) {
    std::vector<double> values;
    const auto state = aggregator_->state();
    for (const NamedTensor& one : state) {
      if (one.name != name) continue;
      ConstTensorView scales = one.tensor;
      for (const NamedTensor& other : state) {
        if (other.name == name + ".scale") scales = other.tensor;
      }
      for (std::int64_t i = 0; i < one.tensor.elems(); ++i) {
        values.push_back(stored_value(one.tensor, scales, static_cast<std::size_t>(i)));
      }
    }
    return values;
  }

 private:
  std::vector<float> grad_ = std::vector<float>(4);
  std::unique_ptr<Aggregator> aggregator_;
};

void alone(const std::function<void(Communicator&)>& body) {
  const auto outcomes = on_ranks(1, [&body](std::unique_ptr<Communicator>& communicator) -> Status {
    body(*communicator);
    return {};
  });
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0].message();
}

// x <- x - rate * mean. Left over at rate 0.5: (0, 1, 2, 3), worth (0, 0.5, 1, 1.5) in x.
TEST(Follow, ResidualsKeepTheirWorthWhenTheRateChanges) {
  alone([](Communicator& communicator) {
    One one(communicator, "topk:k=1", "ef=ef14,ef_rescale_lr=true");
    EXPECT_TRUE(one->set_learning_rate(0.5).ok());
    EXPECT_EQ(one.step({8, 1, 2, 3}), (std::vector<float>{8, 0, 0, 0}));
    EXPECT_TRUE(one->set_learning_rate(0.5).ok());
    EXPECT_THAT(one.entry("w.error"), ElementsAre(0, 1, 2, 3));
    EXPECT_TRUE(one->set_learning_rate(0).ok());  // no update to be worth anything in
    EXPECT_THAT(one.entry("w.error"), ElementsAre(0, 1, 2, 3));
    EXPECT_TRUE(one->set_learning_rate(0.125).ok());
    EXPECT_THAT(one.entry("w.error"), ElementsAre(0, 4, 8, 12));
    EXPECT_EQ(one.step({0, 0, 0, 0}), (std::vector<float>{0, 0, 0, 12}));
    EXPECT_THAT(one.entry("aggregator.scales"), ElementsAre(0.125, 0));
  });
}

TEST(Follow, WithoutTheKeyTheyDoNot) {
  alone([](Communicator& communicator) {
    One one(communicator, "topk:k=1", "ef=ef14");
    EXPECT_TRUE(one->set_learning_rate(0.5).ok());
    one.step({8, 1, 2, 3});
    EXPECT_TRUE(one->set_learning_rate(0.125).ok());
    EXPECT_THAT(one.entry("w.error"), ElementsAre(0, 1, 2, 3));
  });
}

TEST(Follow, StoredResidualsToo) {
  for (const std::string storage : {"bf16", "int8"}) {
    alone([&storage](Communicator& communicator) {
      One one(communicator, "topk:k=1", "ef=ef14,ef_rescale_lr=true,ef_storage=" + storage);
      EXPECT_TRUE(one->set_learning_rate(0.5).ok());
      one.step({8, 1, 2, 3});
      const std::vector<double> before = one.entry("w.error");
      EXPECT_NEAR(before[3], 3, 0.03);
      EXPECT_TRUE(one->set_learning_rate(0.125).ok());
      const std::vector<double> after = one.entry("w.error");
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(after[i], 4 * before[i]) << storage;
    });
  }
}

TEST(Follow, BothResidualsOfSraFollowTheLossScale) {
  alone([](Communicator& communicator) {
    One one(communicator, "signsgd:bucket=tensor", "ef=ef14,combine=sra");
    EXPECT_TRUE(one->set_loss_scale(8).ok());
    one.step({8, 1, 2, 3});
    const std::vector<double> before = one.entry("w.error2");
    EXPECT_THAT(before, ElementsAre(4.5, -2.5, -1.5, -0.5));  // one rank packs its own chunk once
    EXPECT_TRUE(one->set_loss_scale(4).ok());
    EXPECT_THAT(one.entry("w.error2"), ElementsAre(2.25, -1.25, -0.75, -0.25));
  });
}

TEST(Follow, RunningMeansFollowTheLossScale) {
  alone([](Communicator& communicator) {
    One one(communicator, "topk:k=1", "ef=ef21_sgdm,ef_eta=0.5");
    EXPECT_TRUE(one->set_loss_scale(2).ok());
    EXPECT_EQ(one.step({8, 1, 2, 3}), (std::vector<float>{4, 0, 0, 0}));
    EXPECT_TRUE(one->set_loss_scale(4).ok());
    EXPECT_THAT(one.entry("w.ef21.h"), ElementsAre(8, 0, 0, 0));
    EXPECT_THAT(one.entry("w.ef21.mean"), ElementsAre(8, 0, 0, 0));
    EXPECT_THAT(one.entry("w.ef21.v"), ElementsAre(8, 1, 2, 3));
  });
}

TEST(Follow, WhatWouldNotBeFiniteIsRefusedAndChangesNothing) {
  alone([](Communicator& communicator) {
    One one(communicator, "topk:k=1", "ef=ef14,ef_rescale_lr=true");
    EXPECT_TRUE(one->set_learning_rate(1).ok());
    one.step({8, 1, 2, 3});
    const Status status = one->set_learning_rate(1e-39);
    EXPECT_THAT(status, fails(kInvalid, "w.error", "element 1"));
    EXPECT_THAT(one.entry("w.error"), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(one.entry("aggregator.scales"), ElementsAre(1, 0));
    for (const double bad : {-1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
      EXPECT_EQ(one->set_learning_rate(bad).code(), Code::kInvalidArgument);
      EXPECT_EQ(one->set_loss_scale(bad).code(), Code::kInvalidArgument);
    }
    EXPECT_EQ(one->set_loss_scale(0).code(), Code::kInvalidArgument);
  });
}

TEST(Follow, OnlyBetweenSteps) {
  alone([](Communicator& communicator) {
    AggregatorOptions options;
    std::vector<float> a(2), b(2);
    auto aggregator =
        std::move(Aggregator::create(communicator, Registry::builtin(), options)).value();
    ASSERT_TRUE(aggregator->add("a", view_of(std::span<float>(a))).ok());
    ASSERT_TRUE(aggregator->add("b", view_of(std::span<float>(b))).ok());
    ASSERT_TRUE(aggregator->ready(0).ok());
    EXPECT_THAT(aggregator->set_learning_rate(1),
                fails(kInvalid, "learning rate", "step", "finish()"));
    EXPECT_THAT(aggregator->set_loss_scale(1), fails(kInvalid, "loss scale", "step", "finish()"));
    EXPECT_THAT(aggregator->skip_step(true).error(),
                fails(kInvalid, "skip_step()", "step", "finish()"));
    ASSERT_TRUE(aggregator->ready(1).ok());
    ASSERT_TRUE(aggregator->finish().ok());
  });
}

// Steps 1 and 3 overflow on one rank of three: the run is the one without them, bit for bit.
TEST(Follow, StepsLeftOutChangeNothing) {
  for (const std::string spec : {"qsgd:bits=4,ef=ef14,combine=gather",
                                 "signsgd:ef=ef14,combine=sra", "powersgd:1,ef=ef21"}) {
    std::vector<std::vector<float>> with, without;
    const auto run = [&spec](std::vector<std::vector<float>>& means, bool overflows) {
      return on_ranks(3, [&](std::unique_ptr<Communicator>& communicator) -> Status {
        const int rank = communicator->rank();
        AggregatorOptions options;
        options.compressor = spec + ",min_elems=0";
        GW_ASSIGN(auto aggregator, Aggregator::create(*communicator, Registry::builtin(), options));
        std::vector<float> grad(20);
        GW_TRY(aggregator->add(
            "w", {reinterpret_cast<std::byte*>(grad.data()), Shape::matrix(4, 5), DType::kF32}));
        for (int step = 0; step < 5; ++step) {
          const bool left_out = step == 1 || step == 3;
          if (left_out && !overflows) continue;
          GW_ASSIGN(const bool skipped, aggregator->skip_step(left_out && rank == step % 3));
          EXPECT_EQ(skipped, left_out) << rank;
          if (skipped) continue;
          for (std::size_t i = 0; i < grad.size(); ++i) {
            grad[i] = default_gradient("w", rank, step, static_cast<std::int64_t>(i));
          }
          GW_TRY(aggregator->ready(0));
          GW_TRY(aggregator->finish());
          if (rank == 1) means.push_back(grad);
        }
        return {};
      });
    };
    for (const Status& status : run(with, true)) EXPECT_TRUE(status.ok()) << status.message();
    for (const Status& status : run(without, false)) EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(with.size(), 3u);
    EXPECT_EQ(with, without) << spec;
  }
}

// dgc's own: what was not sent follows rate and loss scale, its momentum the loss scale alone (an
// optimizer's does not follow the rate either).
TEST(Follow, TheStateThatDgcKeeps) {
  alone([](Communicator& communicator) {
    One one(communicator, "dgc:ratio=0.25,momentum=0.5", "ef_rescale_lr=true");
    EXPECT_TRUE(one->set_learning_rate(0.5).ok());
    EXPECT_TRUE(one->set_loss_scale(1).ok());
    EXPECT_EQ(one.step({8, 1, 2, 3}), (std::vector<float>{8, 0, 0, 0}));
    EXPECT_TRUE(one->set_learning_rate(0.125).ok());
    EXPECT_THAT(one.entry("w.coder.residual"), ElementsAre(0, 4, 8, 12));
    EXPECT_THAT(one.entry("w.coder.residual.momentum"), ElementsAre(0, 1, 2, 3));
    EXPECT_TRUE(one->set_loss_scale(2).ok());
    EXPECT_THAT(one.entry("w.coder.residual"), ElementsAre(0, 8, 16, 24));
    EXPECT_THAT(one.entry("w.coder.residual.momentum"), ElementsAre(0, 2, 4, 6));
    EXPECT_TRUE(one->skip_step(true).value());
    EXPECT_THAT(one.entry("w.coder.residual"), ElementsAre(0, 8, 16, 24));
    EXPECT_THAT(one.entry("w.coder.residual.momentum"), ElementsAre(0, 2, 4, 6));
    EXPECT_EQ(one.step({0, 0, 0, 0}), (std::vector<float>{0, 0, 0, 27}));  // 24 + 6 / 2
  });
}

TEST(Follow, WithoutTheKeyDgcKeepsItsUnits) {
  alone([](Communicator& communicator) {
    One one(communicator, "dgc:ratio=0.25,momentum=0.5", "dense_1d=false");
    EXPECT_TRUE(one->set_learning_rate(0.5).ok());
    one.step({8, 1, 2, 3});
    EXPECT_TRUE(one->set_learning_rate(0.125).ok());
    EXPECT_THAT(one.entry("w.coder.residual"), ElementsAre(0, 1, 2, 3));
  });
}

// Quantisers one of whose keys follows the step were gathered, before they had slices: what such a
// run saved goes on by shards, and loses nothing.
TEST(Follow, AScheduledQuantiserThatWasGatheredGoesOnByShards) {
  struct Ranks {
    std::vector<int> before, after;  // the nodes of two levels; or all of one
  };
  const std::vector<Ranks> all{{{0, 0, 0}, {0, 0, 0}},
                               {{0, 0, 0}, {0, 0}},
                               {{0, 0, 1, 1}, {0, 0, 1, 1}},
                               {{0, 0, 1, 1}, {0, 0, 1, 1, 2, 2}}};
  for (const Ranks& ranks : all) {
    const bool levels = ranks.before.back() > 0;
    for (std::string feedback : {"ef14", "ef14,ef_storage=int8", "ef21"}) {
      if (levels && feedback == "ef21") continue;
      if (levels) feedback += ",intra_node=none";
      Job gathered;
      gathered.tensors = {{"w", Shape::matrix(10, 20)}};
      gathered.ranks = static_cast<int>(ranks.before.size());
      gathered.node_of = ranks.before;
      gathered.steps = 3;
      gathered.compressor = "qsgd:bits=8@0/4@5,bucket=64,combine=gather,min_elems=0,ef=" + feedback;
      const JobOutcome before = run_job(gathered);
      ASSERT_TRUE(before.status.ok()) << before.status.message();
      Job by_shards = gathered;
      by_shards.compressor = "qsgd:bits=8@0/4@5,bucket=64,min_elems=0,ef=" + feedback;
      by_shards.ranks = static_cast<int>(ranks.after.size());
      by_shards.node_of = ranks.after;
      by_shards.steps = 4;
      by_shards.start_saved = before.saved;
      const JobOutcome after = run_job(by_shards);
      ASSERT_TRUE(after.status.ok()) << feedback << ": " << after.status.message();
      EXPECT_EQ(after.first_difference, -1);
      if (feedback.find("int8") != std::string::npos || feedback == "ef21") continue;
      const std::vector<double> left = average_residual(by_shards, after);
      for (std::size_t e = 0; e < left.size(); ++e) {
        ASSERT_NEAR(before.sum_of_means[e] + after.sum_of_means[e] + left[e],
                    before.sum_of_averages[e] + after.sum_of_averages[e], 1e-4)
            << e;
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::testing::follow_test
