// Stages of as many layers as a user says: the bits of one rank, of replicas and across a resume,
// and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/adapters/pipeline/mesh_runs.h"
#include "tests/adapters/pipeline/stage_models.h"
#include "tests/support/fails.h"

namespace gradwire::testing::stages_by_hand_test {
namespace {

bool has_parameters(const Model<float>& model, int begin, int end) {
  for (int layer = begin; layer < end; ++layer) {
    const auto [first, behind] = model.parameters_of(static_cast<std::size_t>(layer));
    if (behind > first) return true;
  }
  return false;
}

// Cuts at random places of the model, also before layers that have no parameters, until every stage
// has some.
std::vector<int> random_layers(const Model<float>& model, int stages, std::mt19937& random) {
  const int layers = static_cast<int>(model.layers());
  std::vector<int> inner(static_cast<std::size_t>(layers - 1));
  std::iota(inner.begin(), inner.end(), 1);
  while (true) {
    std::ranges::shuffle(inner, random);
    std::vector<int> cuts(inner.begin(), inner.begin() + (stages - 1));
    cuts.push_back(layers);
    std::ranges::sort(cuts);
    std::vector<int> counts;
    int begin = 0;
    bool fits = true;
    for (const int end : cuts) {
      fits = fits && has_parameters(model, begin, end);
      counts.push_back(end - begin);
      begin = end;
    }
    if (fits) return counts;
  }
}

void expect_bits(const Model<float>& model, const DataSet& data, const std::string& optimizer,
                 const std::vector<int>& ranks) {
  PipelineRun run = run_of(model, data, 4, optimizer);
  const Trained alone = train_on_one_rank(run);
  std::mt19937 random(static_cast<unsigned>(model.layers()));
  for (const PipelineKind kind :
       {PipelineKind::kOneFOneB, PipelineKind::kInterleaved, PipelineKind::kZeroBubbleH1,
        PipelineKind::kZeroBubbleV, PipelineKind::kBreadthFirst}) {
    for (const int p : ranks) {
      run.spec = {.kind = kind};
      run.ranks = p;
      run.spec.layers = random_layers(model, p * run.spec.stages_a_rank(), random);
      expect_same(train_pipeline(run), alone, run.spec.text() + " p=" + std::to_string(p));
    }
  }
}

TEST(StagesByHandHaveTheBitsOfOneRank, DeepMlp) {
  expect_bits(deep_mlp(), digits_data(), "sgd", {2, 3, 4});
}

TEST(StagesByHandHaveTheBitsOfOneRank, ResNet) {
  expect_bits(small_resnet(), digits_data(), "adamw", {2, 3});
}

TEST(StagesByHandHaveTheBitsOfOneRank, Gpt) {
  expect_bits(small_gpt(), grammar_text(), "adamw", {2, 3, 4});
}

TEST(StagesByHandHaveTheBitsOfOneRank, TiedGpt) {
  expect_bits(tied_gpt(), grammar_text(), "sgd", {2, 4});
}

const Model<float>& five_layers() {
  static const auto kModel =
      std::move(make_model<float>({"mlp", {20, 16, 16, 12}}, digits().shape(), 10)).value();
  return kModel;
}

MeshTraining on(int replicas, int stages, const PipelineSpec& spec, int zero) {
  return {.training = {.model = &five_layers(),
                       .compressor = "qsgd:bits=4,ef=ef14,min_elems=0,dense_1d=false",
                       .ranks = replicas,
                       .accumulate = 4 / replicas,
                       .lr = 0.002,
                       .steps = 13,
                       .optimizer = "adamw",
                       .zero = zero},
          .stages = stages,
          .spec = spec};
}

PipelineSpec by_hand(PipelineKind kind, int stages, unsigned seed) {
  std::mt19937 random(seed);
  return {.kind = kind, .layers = random_layers(five_layers(), stages, random)};
}

// Two replicas, compressed, and a checkpoint that goes on in another division: that which is cut by
// cost, another number of ranks, another schedule, and back.
TEST(StagesByHand, GoOnInAnotherDivision) {
  for (const int zero : {0, 1}) {
    const MeshTraining whole_mesh = on(2, 1, {}, zero);
    const TemporaryFolder plain;
    const MeshEnded whole = run_mesh(whole_mesh, {.save_to = plain.path()});
    const TemporaryFolder staged;
    expect_equal(run_mesh(on(2, 2, by_hand(PipelineKind::kOneFOneB, 2, 1), zero),
                          {.save_to = staged.path()}),
                 whole, "two stages");
    const auto goes_on = [&](const TemporaryFolder& from, int stages, const PipelineSpec& spec) {
      expect_equal(run_mesh(on(2, stages, spec, zero), {.resume_from = from.path()}), whole,
                   spec.text());
    };
    goes_on(staged, 2, {.kind = PipelineKind::kOneFOneB});
    goes_on(staged, 3, by_hand(PipelineKind::kGpipe, 3, 2));
    goes_on(staged, 2, by_hand(PipelineKind::kZeroBubbleV, 4, 3));
    goes_on(staged, 1, {});
    goes_on(plain, 2, by_hand(PipelineKind::kInterleaved, 4, 4));
  }
}

// Layers that are none of the model's, and stages without layers or parameters.
TEST(StagesByHand, AreRefusedWithTheNumbers) {
  const auto refused = [](const std::vector<int>& layers) {
    const PipelineSpec spec{.kind = PipelineKind::kOneFOneB, .layers = layers};
    const int ranks = static_cast<int>(layers.size());
    return plan_stages(small_gpt(), generate_pipeline(spec, ranks, 4).value(), 0, {}).error();
  };
  const int layers = static_cast<int>(small_gpt().layers());
  EXPECT_TRUE(refused({3, layers - 3}).ok());
  EXPECT_THAT(refused({3, layers - 2}),
              fails(Code::kInvalidArgument, "stages=3+" + std::to_string(layers - 2),
                    std::to_string(layers + 1), std::to_string(layers)));
  EXPECT_THAT(refused({1, 1}), fails(Code::kInvalidArgument, "of 2 layers"));
  EXPECT_THAT(refused({0, layers}), fails(Code::kInvalidArgument, "stage 0 of 0 layers"));
  const PipelineSpec of_relu{.kind = PipelineKind::kOneFOneB,
                             .layers = {1, 1, static_cast<int>(five_layers().layers()) - 2}};
  EXPECT_THAT(plan_stages(five_layers(), generate_pipeline(of_relu, 3, 4).value(), 0, {}).error(),
              fails(Code::kInvalidArgument, "stage", "without parameters"));
  // One for each stage.
  const PipelineSpec few{.kind = PipelineKind::kZeroBubbleV, .layers = {3, 4}};
  EXPECT_THAT(generate_pipeline(few, 2, 4).error(),
              fails(Code::kInvalidArgument, "stages=3+4", "2 numbers", "expected 4"));
}

// Those of a stream, too, are where they are said to be.
TEST(StagesByHand, OfAStreamAreWhereTheyAreSaid) {
  const int layers = static_cast<int>(deep_mlp().layers());
  const StreamRule rule{.ranks = 2, .micro_batches = 1, .layers = {3, layers - 3}};
  const StagePlan plan = plan_stream(deep_mlp(), rule, 1).value();
  ASSERT_EQ(plan.layers().size(), 1U);
  EXPECT_EQ(plan.layers().front().begin, 3U);
  StreamRule wrong = rule;
  wrong.layers.back() += 1;
  EXPECT_THAT(plan_stream(deep_mlp(), wrong, 0).error(),
              fails(Code::kInvalidArgument, "stages=", "expected"));
}

}  // namespace
}  // namespace gradwire::testing::stages_by_hand_test
