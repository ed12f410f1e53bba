// Steps that the host makes while the rest of the gradient is on its way: row Z10 of the trainer's
// acceptance table, on one rank.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/trainer/test_strategies.h"
#include "tests/trainer/training_problems.h"
#include "trainer/optimizers/step_lane.h"
#include "trainer/training.h"

namespace gradwire::offload_overlap_test {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{20};

TrainingOptions some_steps(Offload offload, bool overlap) {
  TrainingOptions options;
  options.batch = 48;
  options.steps = 5;
  options.seed = 3;
  options.lr = 1e-3;
  options.optimizer.name = "adamw";
  options.optimizer.weight_decay = 0.1;
  options.offload = offload;
  options.offload_chunk = 100;
  options.offload_overlap = overlap;
  return options;
}

// A head that shares the embedding's weights: their gradient is complete last, of all they are read
// by first.
const DataSet& grammar() {
  static const DataSet kSet = [] {
    DataOptions options;
    options.text.context = 8;
    return std::move(load_data_set("grammar", {}, options)).value();
  }();
  return kSet;
}
const Model<float>& decoder() {
  static const auto kModel = [] {
    ModelOptions gpt{"gpt", {}, 16};
    gpt.layers = 2;
    gpt.heads = 2;
    gpt.tied = true;
    return std::move(make_model<float>(gpt, grammar().shape(), grammar().classes())).value();
  }();
  return kModel;
}

// Halves gradients, which have arrived when `late` more were given, or when the step's are all.
class Halves final : public OwnStrategy {
 public:
  explicit Halves(int late) : late_(late) {}
  Status on_gradient(int index, TensorView grad, const Stream&) override {
    newest_ = index;
    given_[index] = grad;
    return {};
  }
  Result<bool> arrived(int index, bool wait) override {
    if (index < newest_ + late_ && !(wait && newest_ == 0)) return false;
    if (given_.contains(index)) multiply(given_.extract(index).mapped(), 0.5F);
    return true;
  }
  Status finish(const Stream&) override {
    for (const auto& [index, grad] : given_) multiply(grad, 0.5F);
    given_.clear();
    return {};
  }

 private:
  int late_;
  int newest_ = 0;
  std::map<int, TensorView> given_;  // and not halved yet
};

std::vector<float> trained(const Model<float>& model, const DataSet& data,
                           const TrainingOptions& options, int late,
                           const OnTrainerSpan* told = nullptr) {
  auto trainer = Trainer::create(model, data, options);
  EXPECT_TRUE(trainer.has_value()) << trainer.error().message();
  trainer.value().tell(told);
  Halves strategy(late);
  const auto accuracy = trainer.value().run(strategy, nullptr);
  EXPECT_TRUE(accuracy.has_value()) << accuracy.error().message();
  return flat(trainer.value().parameters());
}

void expect_the_same_bits(const Model<float>& model, const DataSet& data, TrainingOptions options) {
  const Offload offload = std::exchange(options.offload, Offload::kNone);
  const std::vector<float> resident = trained(model, data, options, 0);
  options.offload = offload;
  for (const int late : {0, 3, 1000}) {
    EXPECT_EQ(trained(model, data, options, late), resident) << late;
  }
}

TEST(OffloadOverlap, Z10_TheSameBits) {
  for (const Offload offload : {Offload::kOptimizer, Offload::kParameters}) {
    for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
      TrainingOptions options = some_steps(offload, true);
      options.precision = precision;
      for (const std::int64_t chunk : {1, 100, 1 << 18}) {
        options.offload_chunk = chunk;
        expect_the_same_bits(mlp(), digits(), options);
      }
      options.offload_chunk = 100;
      options.accumulate = 3;
      options.recompute = "sqrt";
      expect_the_same_bits(mlp(), digits(), options);
      options.optimizer.name = "nesterov";
      options.loss_scale = LossScaleOptions::parse("64").value();
      expect_the_same_bits(cnn(), digits(), options);
    }
  }
}

TEST(OffloadOverlap, Z10_TheSameBitsOfTiedLayersAndWithoutMainGradients) {
  for (const Offload offload : {Offload::kOptimizer, Offload::kParameters}) {
    TrainingOptions options = some_steps(offload, true);
    options.batch = 4;
    options.shuffle = Shuffle::kUniform;
    expect_the_same_bits(decoder(), grammar(), options);
    options.precision = Precision::kBF16;
    options.main_gradients = false;
    expect_the_same_bits(decoder(), grammar(), options);
  }
}

// Layers read their parameters after they have given their gradients: until the next layer gives
// its own nothing of them changes.
TEST(OffloadOverlap, Z10_WhatALayerStillReadsIsNotUpdated) {
  auto trainer = Trainer::create(mlp(), digits(), some_steps(Offload::kParameters, true)).value();
  const std::vector<NamedTensor> parameters = trainer.parameters();
  std::map<std::string, std::vector<float>, std::less<>> before;
  int compared = 0;
  const auto values = [&](std::string_view layer) {
    std::vector<NamedTensor> own;
    for (const NamedTensor& each : parameters) {
      if (each.name.starts_with(std::string(layer) + ".")) own.push_back(each);
    }
    return flat(own);
  };
  const OnTrainerSpan told = [&](const TrainerSpan& span) {
    if (span.layer.empty()) return;
    if (span.kind == TrainerSpan::Kind::kForward)
      before[std::string(span.layer)] = values(span.layer);
    if (span.kind != TrainerSpan::Kind::kBackwardInput) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    const std::vector<float> now = values(span.layer);
    EXPECT_EQ(now, before.find(span.layer)->second) << span.layer;
    compared += now.empty() ? 0 : 1;
  };
  trainer.tell(&told);
  Halves strategy(0);
  ASSERT_TRUE(trainer.run(strategy, nullptr).has_value());
  EXPECT_EQ(compared, 5 * 2);  // the first layer has nobody to tell
}

// The last gradient is given when the first ones have been stepped with.
class WaitsForAnUpdate final : public OwnStrategy {
 public:
  explicit WaitsForAnUpdate(const std::atomic<std::int64_t>& updates) : updates_(updates) {}
  Status on_gradient(int index, TensorView, const Stream&) override {
    if (index > 0) return {};
    const std::int64_t wanted = ++steps_;
    const auto deadline = steady_clock::now() + kPatience;
    while (updates_ < wanted && steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return updates_ < wanted ? Status(Code::kTimedOut, "no update during backward") : Status();
  }
  Result<bool> arrived(int, bool) override { return true; }

 private:
  const std::atomic<std::int64_t>& updates_;
  std::int64_t steps_ = 0;
};

TEST(OffloadOverlap, Z10_UpdatesBeginBeforeBackwardEnds) {
  auto trainer = Trainer::create(mlp(), digits(), some_steps(Offload::kOptimizer, true)).value();
  std::atomic<std::int64_t> steps_with_updates = 0;
  const OnTrainerSpan told = [&](const TrainerSpan& span) {
    if (span.kind == TrainerSpan::Kind::kUpdate) steps_with_updates = span.step + 1;
  };
  trainer.tell(&told);
  WaitsForAnUpdate strategy(steps_with_updates);
  const auto accuracy = trainer.run(strategy, nullptr);
  EXPECT_TRUE(accuracy.has_value()) << accuracy.error().message();
}

// A step is made on its lane or not, as it is asked for; with clip it never is.
TEST(OffloadOverlap, WhoMakesTheStep) {
  for (const auto& [overlap, clip, lane] :
       {std::tuple(true, 0.0, true), {false, 0.0, false}, {true, 0.5, false}}) {
    TrainingOptions options = some_steps(Offload::kOptimizer, overlap);
    options.clip = clip;
    std::atomic<int> updates = 0;
    const OnTrainerSpan told = [&](const TrainerSpan& span) {
      updates += span.kind == TrainerSpan::Kind::kUpdate ? 1 : 0;
    };
    trained(mlp(), digits(), options, 0, &told);
    const auto elems = parameter_elems(mlp().parameters());
    EXPECT_EQ(updates, lane ? 5 * ((elems + 99) / 100) : 0);
  }
}

// A strategy that is lost in the middle of a step: the lane rests when run() returns.
TEST(OffloadOverlap, AnErrorEndsTheStepBesideIt) {
  class Lost final : public OwnStrategy {
   public:
    Status on_gradient(int index, TensorView, const Stream&) override {
      return index == 0 ? Status(Code::kPeerLost, "rank 1 lost") : Status();
    }
    Result<bool> arrived(int, bool) override { return true; }
  };
  TrainingOptions options = some_steps(Offload::kOptimizer, true);
  options.offload_chunk = 1;
  for (int round = 0; round < 20; ++round) {
    auto trainer = Trainer::create(mlp(), digits(), options).value();
    Lost strategy;
    const auto accuracy = trainer.run(strategy, nullptr);
    ASSERT_FALSE(accuracy.has_value());
    EXPECT_EQ(accuracy.error().code(), Code::kPeerLost);
  }
}

TEST(StepLaneTest, WorksDownInChunksToWhatIsReleased) {
  StepLane lane;
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  for (int round = 0; round < 2; ++round) {
    parts.clear();
    lane.begin(10, 4, [&](std::size_t first, std::size_t count) {
      parts.emplace_back(first, count);
      return Status();
    });
    lane.release(7);
    lane.release(8);  // said before: 7
    lane.release(5);
    EXPECT_TRUE(lane.finish().ok());
    EXPECT_EQ(parts, (std::vector<std::pair<std::size_t, std::size_t>>{{6, 4}, {2, 4}, {0, 2}}));
  }
}

TEST(StepLaneTest, TheFirstErrorEndsTheStep) {
  StepLane lane;
  int parts = 0;
  lane.begin(10, 1, [&](std::size_t first, std::size_t) {
    ++parts;
    return first == 7 ? Status(Code::kCorruptPayload, "seven") : Status();
  });
  EXPECT_EQ(lane.finish().message(), "seven");
  EXPECT_EQ(parts, 3);
  lane.begin(2, 1, [&](std::size_t, std::size_t) { return Status(); });
  EXPECT_TRUE(lane.finish().ok());
}

}  // namespace
}  // namespace gradwire::offload_overlap_test
