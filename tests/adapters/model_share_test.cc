// Ranks that each hold a part of a model: norms, clipping, LAMB's lengths and flags of overflow are
// those of one rank that holds all of it, since each element counts once.
#include "trainer/model_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/group_consensus.h"
#include "adapters/trainer/sharded/sharded.h"
#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"
#include "tests/trainer/training_problems.h"
#include "trainer/layers/linear.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::testing::model_share_test {
namespace {

constexpr double kClip = 3;

// a (4, 6) and its bias are cut by outputs over tp, c (3, 4) by inputs; c's bias is whole on every
// rank that has a part of c. With two stages a is on the first and c on the second.
ModelShare share_of(const MeshSizes& mesh, int rank) {
  const auto cut = [&](const TensorBox& whole, int dim, int peer) {
    const Range range = even_part(4, mesh.tp, peer);
    return whole.cut(dim, range);
  };
  const TensorBox a = TensorBox::of(Shape::matrix(4, 6));
  const TensorBox c = TensorBox::of(Shape::matrix(3, 4));
  const TensorBox a_bias = TensorBox::of(Shape::vector(4));
  const TensorBox c_bias = TensorBox::of(Shape::vector(3));
  ModelShare share{rank, {{"a.weight", {}}, {"a.bias", {}}, {"c.weight", {}}, {"c.bias", {}}}};
  for (int stage = 0; stage < mesh.pp; ++stage) {
    for (int peer = 0; peer < mesh.tp; ++peer) {
      const bool has_a = stage == 0;
      const bool has_c = stage + 1 == mesh.pp;
      share.tensors[0].held.push_back(has_a ? cut(a, 0, peer) : a.cut(0, {0, 0}));
      share.tensors[1].held.push_back(has_a ? cut(a_bias, 0, peer) : a_bias.cut(0, {0, 0}));
      share.tensors[2].held.push_back(has_c ? cut(c, 1, peer) : c.cut(0, {0, 0}));
      share.tensors[3].held.push_back(has_c ? c_bias : c_bias.cut(0, {0, 0}));
    }
  }
  return share;
}

// The layers of which a rank holds anything, as large as what it holds.
Model<float> model_of(const ModelShare& share) {
  const auto held = [&](std::size_t tensor) {
    return share.tensors[tensor].held[static_cast<std::size_t>(share.rank)];
  };
  Model<float> model(SampleShape{6, 1, 1});
  const std::int64_t outputs = held(1).elems();
  if (outputs > 0) model.add("a", std::make_unique<Linear<float>>(6, outputs));
  const std::int64_t inputs = held(2).elems() / 3;
  if (inputs > 0) model.add("c", std::make_unique<Linear<float>>(inputs, 3));
  model.set_init([&](ParameterInfo& info) {
    info.fan_in = info.name.starts_with("a.") ? 6 : 4;  // of the whole layer
    for (std::size_t t = 0; t < share.tensors.size(); ++t) {
      if (share.tensors[t].name == info.name) info.box = held(t);
    }
  });
  return model;
}

// A small whole number for every element of a tensor: sums of squares are exact.
float gradient_at(const std::string& tensor, std::int64_t element) {
  const std::int64_t of_tensor = tensor[0] + static_cast<std::int64_t>(tensor.size());
  return static_cast<float>((7 * element + of_tensor) % 9 - 4);
}

class NoStatistics final : public RunningStatistics {
 public:
  std::vector<NamedTensor> buffers() override { return {}; }
  std::span<float> buffer_values() override { return {}; }
  Status take_statistics() override { return {}; }
  std::span<double> statistics() override { return {}; }
  void commit() override {}
  void discard_statistics() override {}
};

// Gradients of the elements that are here. At step `overflows`, element (2, 3) of c has none.
class Elements final : public StepGradientSource {
 public:
  Elements(const SourceParts& parts, std::int64_t overflows)
      : table_(parts.model.parameters()), fold_(parts.fold), overflows_(overflows) {}

  void read_through(LayerGate* /*gate*/) override {}
  Result<double> run(const StepPlace& place, const Ready& ready, const Over& over) override {
    GW_ASSIGN(const std::span<float> all, fold_.begin(0));
    for (auto index = static_cast<int>(table_.size()); index-- > 0;) {
      const ParameterInfo& info = table_[static_cast<std::size_t>(index)];
      const TensorBox box = box_of(info);
      const auto first = static_cast<std::size_t>(info.offset);
      for (std::int64_t i = 0; i < box.elems(); ++i) {
        const std::int64_t element = box.element(i);
        const bool bad = place.step == overflows_ && info.name == "c.weight" && element == 11;
        all[first + static_cast<std::size_t>(i)] =
            bad ? std::numeric_limits<float>::infinity()
                : gradient_at(info.name, element) * static_cast<float>(place.loss_scale);
      }
      GW_ASSIGN(const bool done, fold_.ready(index, 0));
      if (done) GW_TRY(ready(index, index));
    }
    GW_TRY(fold_.micro_batch_done(0, place.loss_scale));
    GW_TRY(over(1));
    return 0.0;
  }
  Result<Judgement> judge(Range, std::int64_t, LayerGate*) override { return Judgement{}; }
  std::vector<std::size_t> openings(Way /*way*/) const override { return {}; }
  RunningStatistics& running() override { return none_; }
  void tell(const OnTrainerSpan* /*told*/) override {}

 private:
  const ParameterTable& table_;
  GradientFold& fold_;
  std::int64_t overflows_;
  NoStatistics none_;
};

struct Case {
  const char* optimizer = "sgd";
  const char* loss_scale = "none";
  std::int64_t overflows = -1;
};

struct Step {
  double norm = 0;
  bool skipped = false;
  friend bool operator==(const Step&, const Step&) = default;
};

// What a run of one rank left: the elements that it held, by tensor and place in the whole.
struct Ended {
  std::vector<Step> steps;
  std::map<std::pair<std::string, std::int64_t>, float> elements;
};

TrainingOptions options_of(const Case& run, const ModelShare* share) {
  TrainingOptions options;
  options.batch = 30;
  options.steps = 3;
  options.lr = 0.25;
  options.momentum = 0;
  options.clip = kClip;
  options.optimizer.name = run.optimizer;
  options.optimizer.weight_decay = 0.125;
  options.loss_scale = LossScaleOptions::parse(run.loss_scale).value();
  options.share = share;
  options.seed = 5;
  return options;
}

Result<Trainer> trainer_of(const Case& run, const Model<float>& model, const Demands& demands,
                           const TrainingOptions& options) {
  return Trainer::create(
      model, digits(), options, demands,
      {[&run](const SourceParts& parts) -> Result<std::unique_ptr<StepGradientSource>> {
        return std::unique_ptr<StepGradientSource>(
            std::make_unique<Elements>(parts, run.overflows));
      }});
}

Status end_run(Trainer& trainer, Strategy& strategy, const Model<float>& model, Ended& ended) {
  GW_TRY(trainer
             .run(strategy,
                  [&](const StepReport& report) {
                    ended.steps.push_back({report.gradient_norm.value_or(0), report.skipped});
                    return Status();
                  })
             .error());
  const std::vector<NamedTensor> parameters = trainer.parameters();
  for (std::size_t t = 0; t < parameters.size(); ++t) {
    const auto values = elements<float>(ConstTensorView(parameters[t].tensor));
    const TensorBox box = box_of(model.parameters()[t]);
    for (std::int64_t i = 0; i < box.elems(); ++i) {
      ended.elements[{parameters[t].name, box.element(i)}] = values[static_cast<std::size_t>(i)];
    }
  }
  return {};
}

Ended on_one_rank(const Case& run) {
  const Model<float> model = model_of(share_of({1, 1, 1}, 0));
  Ended ended;
  auto trainer = trainer_of(run, model, {}, options_of(run, nullptr));
  EXPECT_TRUE(trainer.has_value()) << trainer.error().message();
  SingleProcess alone;
  const Status status = end_run(trainer.value(), alone, model, ended);
  EXPECT_TRUE(status.ok()) << status.message();
  return ended;
}

// Gradients are what they are; numbers go over the mesh.
class OnMesh final : public Strategy {
 public:
  explicit OnMesh(MeshGroups groups) : consensus_(std::move(groups)) {}
  GradientExchange& exchange() override { return exchange_; }
  ParameterKeeper& keeper() override { return keeper_; }
  Consensus& consensus() override { return consensus_; }

 private:
  GradientExchange exchange_;
  ParameterKeeper keeper_;
  GroupConsensus consensus_;
};

Status train_on_mesh(const Case& run, const MeshSizes& mesh, Communicator& world, Ended& ended) {
  const MeshCoordinates at = coordinates_of(mesh, world.rank());
  const ModelShare share = share_of(mesh, rank_at({mesh.pp, 1, mesh.tp}, {at.pp, 0, at.tp}));
  const Model<float> model = model_of(share);
  TrainingOptions options = options_of(run, &share);
  options.rank = at.dp;
  options.ranks = mesh.dp;
  GW_ASSIGN(MeshGroups groups, MeshGroups::create(world, mesh));
  if (mesh.dp == 1) {
    GW_ASSIGN(Trainer trainer, trainer_of(run, model, {}, options));
    OnMesh strategy(std::move(groups));
    return end_run(trainer, strategy, model, ended);
  }
  // Replicas that have a shard each of what is here.
  const ShardedOptions sharded{1, {}, "none", options.optimizer, Offload::kNone, 1000};
  ShardedOptions own = sharded;
  own.optimizer.momentum = 0;
  GW_ASSIGN(Trainer trainer, trainer_of(run, model, ShardedStrategy::demands_of(own), options));
  GW_ASSIGN(const auto strategy,
            ShardedStrategy::create(std::move(groups), Registry::builtin(), own, trainer.memory()));
  GW_TRY(strategy->start(ReplicaStart::kCompare));
  return end_run(trainer, *strategy, model, ended);
}

std::vector<Ended> on_mesh(const Case& run, const MeshSizes& mesh) {
  std::vector<Ended> all(static_cast<std::size_t>(mesh.ranks()));
  const auto statuses =
      on_ranks(static_cast<int>(mesh.ranks()), [&](std::unique_ptr<Communicator>& world) {
        return train_on_mesh(run, mesh, *world, all[static_cast<std::size_t>(world->rank())]);
      });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

class ShareMeshes : public ::testing::TestWithParam<MeshSizes> {};

TEST_P(ShareMeshes, ClipAsOneRankDoes) {
  double squares = 0;
  for (const auto& [tensor, elems] : std::map<std::string, std::int64_t>{
           {"a.weight", 24}, {"a.bias", 4}, {"c.weight", 12}, {"c.bias", 3}}) {
    for (std::int64_t i = 0; i < elems; ++i) {
      const double value = gradient_at(tensor, i);
      squares += value * value;
    }
  }
  ASSERT_GT(std::sqrt(squares), kClip);
  const Ended whole = on_one_rank({});
  ASSERT_EQ(whole.elements.size(), 43U);
  for (const Ended& ended : on_mesh({}, GetParam())) {
    ASSERT_EQ(ended.steps.size(), 3U);
    for (const Step& step : ended.steps) EXPECT_EQ(step.norm, std::sqrt(squares));
    EXPECT_EQ(ended.steps, whole.steps);
    EXPECT_FALSE(ended.elements.empty());
    for (const auto& [place, value] : ended.elements) {
      EXPECT_EQ(value, whole.elements.at(place)) << place.first << " " << place.second;
    }
  }
}

// Lengths of tensors, each over its boxes: sums of squares of floats, which round otherwise than
// the whole's in the last bit of a double.
TEST_P(ShareMeshes, StepByTheLengthOfWholeTensors) {
  const Case lamb{.optimizer = "lamb"};
  const Ended whole = on_one_rank(lamb);
  for (const Ended& ended : on_mesh(lamb, GetParam())) {
    for (const auto& [place, value] : ended.elements) {
      EXPECT_NEAR(value, whole.elements.at(place), 1e-6) << place.first << " " << place.second;
    }
  }
}

TEST_P(ShareMeshes, LeaveOutAStepTogether) {
  const Case overflow{.loss_scale = "dynamic", .overflows = 1};
  const Ended whole = on_one_rank(overflow);
  for (const Ended& ended : on_mesh(overflow, GetParam())) {
    ASSERT_EQ(ended.steps.size(), 3U);
    EXPECT_FALSE(ended.steps[0].skipped);
    EXPECT_TRUE(ended.steps[1].skipped);
    EXPECT_FALSE(ended.steps[2].skipped);
    EXPECT_EQ(ended.steps, whole.steps);
    for (const auto& [place, value] : ended.elements) {
      EXPECT_EQ(value, whole.elements.at(place)) << place.first << " " << place.second;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, ShareMeshes,
                         ::testing::Values(MeshSizes{1, 1, 4}, MeshSizes{2, 1, 2},
                                           MeshSizes{1, 2, 2}, MeshSizes{2, 2, 1}),
                         [](const auto& info) {
                           const MeshSizes& m = info.param;
                           return "pp" + std::to_string(m.pp) + "dp" + std::to_string(m.dp) + "tp" +
                                  std::to_string(m.tp);
                         });

TEST(ModelShare, OfOtherTensorsThanThoseHereIsRefused) {
  ModelShare share = share_of({1, 1, 2}, 1);
  const Model<float> model = model_of(share);
  EXPECT_TRUE(check_share(share, model.parameters()).ok());
  share.rank = 0;  // the other half
  EXPECT_THAT(check_share(share, model.parameters()),
              fails(Code::kInvalidArgument, "a.weight", "2:4", "0:2"));
  share.rank = 2;
  EXPECT_THAT(check_share(share, model.parameters()), fails(Code::kInvalidArgument, "rank 2"));
  share = share_of({1, 1, 2}, 1);
  share.tensors.pop_back();
  EXPECT_THAT(check_share(share, model.parameters()), fails(Code::kInvalidArgument, "3", "4"));
  share = share_of({1, 1, 2}, 1);
  share.tensors[0].held[0] = share.tensors[0].held[1];  // nobody has the upper half
  EXPECT_THAT(check_share(share, model.parameters()),
              fails(Code::kInvalidArgument, "a.weight", "12"));
}

TEST(ModelShare, NormsThatNoSumServesAreRefused) {
  const ModelShare share = share_of({1, 1, 2}, 0);
  const Model<float> model = model_of(share);
  TrainingOptions options = options_of({}, &share);
  options.clip_worker = 2;
  EXPECT_THAT(Trainer::create(model, digits(), options).error(),
              fails(Code::kUnsupported, "clip-worker 2"));
}

}  // namespace
}  // namespace gradwire::testing::model_share_test
