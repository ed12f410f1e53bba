// A model in parts, each with its own parameters and activations, has the bits of the whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/fails.h"
#include "trainer/layer_walk.h"
#include "trainer/models.h"

namespace gradwire::parts_test {
namespace {

constexpr std::int64_t kRows = 5;
constexpr std::int64_t kClasses = 7;
constexpr std::uint64_t kSeed = 3;

struct Kind {
  ModelOptions options;
  SampleShape input;
};
std::vector<Kind> kinds() {
  ModelOptions gpt{"gpt", {}, 8};
  gpt.dropout = 0.3;
  return {{{"mlp", {9, 8, 7}}, {1, 4, 4}},
          {{"cnn", {}}, {2, 8, 8}},
          {{"resnet8", {}, 4}, {3, 8, 8}},
          {{"alexnet", {}, 8}, {1, 16, 16}},
          {gpt, {6, 1, 1}}};
}

// Parameters, statistics and gradients, one after another.
struct Values {
  std::vector<float> params;
  std::vector<float> grads;
  std::vector<double> statistics;
  std::vector<float> outputs;
};

std::vector<float> inputs(const Kind& kind) {
  std::vector<float> x(static_cast<std::size_t>(kRows * kind.input.elems()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto step = static_cast<float>((i * 37) % 11);
    x[i] = kind.options.name == "gpt" ? static_cast<float>((i * 5) % 7) : step * 0.3F - 1.4F;
  }
  return x;
}
void fill_derivative(std::span<float> dy) {
  for (std::size_t i = 0; i < dy.size(); ++i) {
    dy[i] = static_cast<float>((i * 29) % 13) * 0.01F - 0.05F;
  }
}

// The layers of each range through a part of its own; the parts' results one after another.
Values through(const Model<float>& whole, const Kind& kind, const std::vector<LayerRange>& ranges,
               const std::string& recompute) {
  struct Part {
    Model<float> model;
    Activations<float> activations;
    LayerWalk walk;
    Values values;
    ModelPass<float> pass;
  };
  std::vector<std::unique_ptr<Part>> parts;
  std::vector<float> between = inputs(kind);
  for (const LayerRange& range : ranges) {
    Model<float> model = whole.part(std::vector{range});
    const auto segments = recompute_segments(recompute, model, model.all()).value();
    auto activations =
        Activations<float>::create(model.activation_sizes(model.all(), kRows, segments), kRows);
    auto part = std::unique_ptr<Part>(
        new Part{model, std::move(activations).value(), LayerWalk(model, segments), {}, {}});
    part->walk = LayerWalk(part->model, segments, part->model.all());
    Values& values = part->values;
    values.params.resize(static_cast<std::size_t>(parameter_elems(part->model.parameters())));
    init_parameters<float>(part->model.parameters(), kSeed, values.params);
    values.grads.resize(static_cast<std::size_t>(part->model.gradients().elems()));
    values.statistics.resize(static_cast<std::size_t>(part->model.statistics_elems()));
    part->pass = {values.params,    kRows, &part->activations, {PassMode::kTrain, 5, 2, 4}, {},
                  values.statistics};
    const std::span<float> x = part->activations.values(0, kRows);
    std::ranges::copy(between, x.begin());
    EXPECT_TRUE(part->walk.forward(part->pass, nullptr).ok());
    const auto y = part->activations.values(part->model.layers(), kRows);
    between.assign(y.begin(), y.end());
    parts.push_back(std::move(part));
  }
  Values all;
  all.outputs = between;
  fill_derivative(between);
  for (std::size_t i = parts.size(); i-- > 0;) {
    Part& part = *parts[i];
    std::ranges::copy(between, part.activations.deltas(part.model.layers(), kRows).begin());
    const auto ready = [](int) { return Status(); };
    EXPECT_TRUE(part.walk.backward(part.pass, part.values.grads, ready, nullptr).ok());
    const auto dx = part.activations.deltas(0, kRows);
    between.assign(dx.begin(), dx.end());
  }
  for (const auto& part : parts) {
    const Values& one = part->values;
    all.params.insert(all.params.end(), one.params.begin(), one.params.end());
    all.grads.insert(all.grads.end(), one.grads.begin(), one.grads.end());
    all.statistics.insert(all.statistics.end(), one.statistics.begin(), one.statistics.end());
  }
  return all;
}

TEST(ModelParts, HaveTheBitsOfTheWhole) {
  for (const Kind& kind : kinds()) {
    const Model<float> model =
        std::move(make_model<float>(kind.options, kind.input, kClasses)).value();
    const std::size_t layers = model.layers();
    std::vector<float> params(static_cast<std::size_t>(parameter_elems(model.parameters())));
    init_parameters<float>(model.parameters(), kSeed, params);
    for (const char* recompute : {"none", "full", "2"}) {
      const Values whole = through(model, kind, {model.all()}, recompute);
      EXPECT_EQ(whole.params, params);
      const std::vector<LayerRange> cuts{
          {0, layers / 3}, {layers / 3, layers - 1}, {layers - 1, layers}};
      const Values cut = through(model, kind, cuts, recompute);
      EXPECT_EQ(cut.params, whole.params) << kind.options.name;
      EXPECT_EQ(cut.outputs, whole.outputs) << kind.options.name << " " << recompute;
      EXPECT_EQ(cut.grads, whole.grads) << kind.options.name << " " << recompute;
      EXPECT_EQ(cut.statistics, whole.statistics) << kind.options.name << " " << recompute;
    }
  }
}

TEST(ModelParts, KeepNamesAndStarts) {
  ModelOptions options{"mlp", {9, 8}};
  options.init = "xavier";
  const Model<float> model = std::move(make_model<float>(options, {1, 4, 4}, kClasses)).value();
  const Model<float> part = model.part(std::vector<LayerRange>{{0, 2}, {3, model.layers()}});
  ASSERT_EQ(part.layers(), model.layers() - 1);
  std::vector<std::string> names;
  for (const ParameterInfo& info : part.parameters()) names.push_back(info.name);
  EXPECT_THAT(names, ::testing::ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias",
                                            "fc3.weight", "fc3.bias"));
  for (const ParameterInfo& info : part.parameters()) {
    EXPECT_NE(info.init.kind, Init::Kind::kFanIn) << info.name;
  }
}

// The head is tied to the embedding where that is in the part, else it has the parameter itself.
TEST(ModelParts, TiedLayersTakeWhatTheyNeedAlong) {
  ModelOptions options{"gpt", {}, 8};
  options.tied = true;
  const Model<float> model = std::move(make_model<float>(options, {6, 1, 1}, kClasses)).value();
  ASSERT_EQ(model.gradients().tied, std::vector<int>{0});
  const LayerRange last{model.layers() - 1, model.layers()};
  const Model<float> alone = model.part(std::vector{last});
  ASSERT_EQ(alone.parameters().size(), 1);
  EXPECT_EQ(alone.parameters().front().name, "embed.token");
  EXPECT_EQ(alone.parameters_of(0), (std::pair{0, 1}));
  EXPECT_TRUE(alone.gradients().tied.empty());
  std::vector<float> whole(static_cast<std::size_t>(parameter_elems(model.parameters())));
  init_parameters<float>(model.parameters(), kSeed, whole);
  std::vector<float> here(static_cast<std::size_t>(parameter_elems(alone.parameters())));
  init_parameters<float>(alone.parameters(), kSeed, here);
  EXPECT_TRUE(std::equal(here.begin(), here.end(), whole.begin()));
  const Model<float> ends = model.part(std::vector<LayerRange>{{0, 1}, last});
  EXPECT_EQ(ends.gradients().tied, std::vector<int>{0});
  EXPECT_EQ(ends.parameters().size(), 2);
}

}  // namespace
}  // namespace gradwire::parts_test
