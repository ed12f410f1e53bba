// T1: analytic gradients of every layer and model against central differences in double, both of
// layers in double (to 1e-6) and of those in float (to 1e-3).
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/trainer/layer_run.h"
#include "trainer/layers/avg_pool2d.h"
#include "trainer/layers/batch_norm2d.h"
#include "trainer/layers/causal_attention.h"
#include "trainer/layers/chain.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/dropout.h"
#include "trainer/layers/embedding.h"
#include "trainer/layers/flatten.h"
#include "trainer/layers/gelu.h"
#include "trainer/layers/layer_norm.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/relu.h"
#include "trainer/layers/residual.h"
#include "trainer/models.h"

namespace gradwire::gradients_test {
namespace {

using Values = std::vector<double>;

// (f(v + h) - f(v - h)) / 2h at element i. With h = 1e-6 its error is the rounding of f over h,
// up to 1e-8 for sums of a hundred terms; that of the third derivative (times h^2) is below.
template <typename Function>
double slope(Values& at, std::size_t i, Function f) {
  constexpr double kStep = 1e-6;
  const double centre = at[i];
  at[i] = centre + kStep;
  const double above = f();
  at[i] = centre - kStep;
  const double below = f();
  at[i] = centre;
  return (above - below) / (2 * kStep);
}

void expect_close(double analytic, double numeric, double tolerance, std::size_t i) {
  EXPECT_NEAR(analytic, numeric, tolerance * std::max(1.0, std::abs(numeric))) << "element " << i;
}

template <typename T>
Values widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

// The slopes of f = sum of weight * y, for fixed random weights dy, by x and by the parameters.
struct Slopes {
  Values dx;
  Values grads;
};
Slopes slopes(LayerRun<double>& run, const Values& dy, bool by_input) {
  const auto f = [&] {
    run.forward();
    double sum = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) sum += run.y[i] * dy[i];
    return sum;
  };
  Slopes found;
  for (std::size_t i = 0; by_input && i < run.x.size(); ++i) {
    found.dx.push_back(slope(run.x, i, f));
  }
  for (std::size_t i = 0; i < run.params.size(); ++i) {
    found.grads.push_back(slope(run.params, i, f));
  }
  return found;
}

template <typename T>
void expect_gradients(const Layer<T>& layer, const LayerRun<double>& like, const Values& dy,
                      const Slopes& expected, double tolerance) {
  LayerRun<T> run(layer, like.rows, std::vector<T>(like.x.begin(), like.x.end()),
                  std::vector<T>(like.params.begin(), like.params.end()));
  run.context = like.context;
  run.forward();
  run.backward(std::vector<T>(dy.begin(), dy.end()));
  for (std::size_t i = 0; i < expected.dx.size(); ++i) {
    expect_close(static_cast<double>(run.dx[i]), expected.dx[i], tolerance, i);
  }
  for (std::size_t i = 0; i < expected.grads.size(); ++i) {
    expect_close(static_cast<double>(run.grads[i]), expected.grads[i], tolerance, i);
  }
}

// make(T()) makes the layer for values of type T. All values are floats, so that both types start
// from the same.
template <typename Make>
void check_layer(Make make, std::int64_t in, std::int64_t rows, const Values& x = {}) {
  const std::unique_ptr<Layer<double>> layer = make(double());
  const std::int64_t params = parameter_elems(layer->parameters());
  LayerRun<double> run(*layer, rows, x.empty() ? widened(draws<float>(rows * in, 11)) : x,
                       widened(draws<float>(params, 12)));
  run.context = {PassMode::kTrain, 5, 6, 7};
  const Values dy = widened(draws<float>(rows * layer->output().elems(), 13));
  const Slopes expected = slopes(run, dy, x.empty());
  expect_gradients<double>(*layer, run, dy, expected, 1e-6);
  const std::unique_ptr<Layer<float>> single = make(float());
  expect_gradients<float>(*single, run, dy, expected, 1e-3);
}

// A maker of Name<T>(arguments).
#define GW_MAKE(Name, ...) \
  []<typename T>(T) -> std::unique_ptr<Layer<T>> { return std::make_unique<Name<T>>(__VA_ARGS__); }

constexpr SampleShape kImage{2, 3, 4};

TEST(Gradients, T1_Linear) {
  check_layer(GW_MAKE(Linear, 7, 5), 7, 3);
  check_layer(GW_MAKE(Linear, 7, 5, LinearOptions{false, 3}), 21, 2);
}
TEST(Gradients, T1_Relu) { check_layer(GW_MAKE(Relu, kImage), 24, 3); }
TEST(Gradients, T1_Gelu) { check_layer(GW_MAKE(Gelu, kImage), 24, 3); }
TEST(Gradients, T1_Flatten) { check_layer(GW_MAKE(Flatten, kImage), 24, 3); }
TEST(Gradients, T1_Dropout) { check_layer(GW_MAKE(Dropout, kImage, 0.4, "name"), 24, 3); }
TEST(Gradients, M7_MaxPool2d) {
  check_layer(GW_MAKE(MaxPool2d, SampleShape{2, 4, 5}), 40, 3);
  check_layer(GW_MAKE(MaxPool2d, SampleShape{2, 7, 6}, 3, 2), 84, 2);
}
TEST(Gradients, M7_AvgPool2d) {
  check_layer(GW_MAKE(AvgPool2d, SampleShape{2, 4, 5}, 2), 40, 3);
  check_layer(GW_MAKE(AvgPool2d, AvgPool2d<T>::global(SampleShape{3, 4, 5})), 60, 2);
}
TEST(Gradients, M7_Conv2d) {
  check_layer(GW_MAKE(Conv2d, SampleShape{2, 5, 4}, 3, 3), 40, 2);
  check_layer(GW_MAKE(Conv2d, SampleShape{1, 3, 3}, 2, 5), 9, 2);
  check_layer(GW_MAKE(Conv2d, SampleShape{2, 6, 5}, 3, ConvOptions{3, 2, 1}), 60, 2);
  check_layer(GW_MAKE(Conv2d, SampleShape{2, 7, 9}, 2, ConvOptions{4, 3, 2, 1, false}), 126, 2);
  check_layer(GW_MAKE(Conv2d, SampleShape{4, 5, 5}, 6, ConvOptions{3, 1, 1, 2}), 100, 2);
}
TEST(Gradients, M7_BatchNorm2d) { check_layer(GW_MAKE(BatchNorm2d, kImage), 24, 3); }
TEST(Gradients, T1_LayerNorm) { check_layer(GW_MAKE(LayerNorm, SampleShape{3, 1, 8}), 24, 2); }
TEST(Gradients, M11_CausalAttention) {
  check_layer(GW_MAKE(CausalAttention, 5, 6, 2), 90, 2);
  check_layer(GW_MAKE(CausalAttention, 1, 4, 1), 12, 3);
}
TEST(Gradients, T1_Embedding) {
  check_layer(GW_MAKE(Embedding, EmbeddingShape{5, 3, 4}), 3, 2, {0, 4, 4, 2, 4, 0});
}

template <typename T>
std::unique_ptr<Layer<T>> branch_and_shortcut() {
  const SampleShape in{2, 4, 4};
  auto branch = std::make_unique<Chain<T>>(in);
  branch->add("conv", std::make_unique<Conv2d<T>>(in, 3, ConvOptions{3, 2, 1, 1, false}));
  branch->add("bn", std::make_unique<BatchNorm2d<T>>(branch->output()));
  branch->add("gelu", std::make_unique<Gelu<T>>(branch->output()));
  branch->add("conv2", std::make_unique<Conv2d<T>>(branch->output(), 3, 3));
  auto shortcut = std::make_unique<Chain<T>>(in);
  shortcut->add("conv", std::make_unique<Conv2d<T>>(in, 3, ConvOptions{1, 2, 0, 1, false}));
  shortcut->add("bn", std::make_unique<BatchNorm2d<T>>(shortcut->output()));
  return std::make_unique<Residual<T>>(in, std::move(branch), std::move(shortcut));
}
template <typename T>
std::unique_ptr<Layer<T>> branch_around() {
  const SampleShape in{3, 1, 4};
  auto branch = std::make_unique<Chain<T>>(in);
  branch->add("norm", std::make_unique<LayerNorm<T>>(in));
  branch->add("fc", std::make_unique<Linear<T>>(4, 12, LinearOptions{true, 3}));
  branch->add("heads", std::make_unique<CausalAttention<T>>(3, 4, 2));
  return std::make_unique<Residual<T>>(in, std::move(branch));
}
TEST(Gradients, T1_Residual) {
  check_layer([]<typename T>(T) { return branch_and_shortcut<T>(); }, 32, 3);
  check_layer([]<typename T>(T) { return branch_around<T>(); }, 12, 2);
}

TEST(Gradients, T1_Losses) {
  Values logits = draws(4 * 6, 14);
  const std::vector<std::uint32_t> labels{5, 0, 3, 3};
  Values delta(logits.size());
  for (const Loss loss : {Loss::kCrossEntropy, Loss::kSquares}) {
    mean_loss<double>(loss, logits, labels, delta);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      expect_close(delta[i],
                   slope(logits, i, [&] { return mean_loss<double>(loss, logits, labels, {}); }),
                   1e-7, i);
    }
  }
}

// Every `stride`-th parameter of a whole model, at its real initialisation.
void check_model(const ModelOptions& options, SampleShape input, std::size_t stride) {
  auto made = make_model<double>(options, input, 10);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const Model<double>& model = made.value();
  Values params(static_cast<std::size_t>(parameter_elems(model.parameters())));
  init_parameters<double>(model.parameters(), 7, params);
  const std::int64_t rows = 4;
  auto activations = std::move(model.make_activations(rows)).value();
  const Values x = draws(rows * input.elems(), 15);
  std::copy(x.begin(), x.end(), activations.values(0, rows).begin());
  const std::int64_t labels_per_sample = model.output().elems() / 10;
  std::vector<std::uint32_t> labels;
  for (std::int64_t i = 0; i < rows * labels_per_sample; ++i) {
    labels.push_back(static_cast<std::uint32_t>((i * i + 3) % 10));
  }
  if (options.name == "gpt") {
    for (double& id : activations.values(0, rows)) id = std::floor(std::abs(id) * 4);
  }
  const ModelPass<double> pass{params, rows, &activations, {PassMode::kTrain, 1, 2, 3}};
  const auto loss = [&] {
    return mean_loss<double>(model.loss(), model.forward(pass), labels, {});
  };
  const GradientTable table = model.gradients();
  Values grads(static_cast<std::size_t>(table.elems()), 777);
  mean_loss<double>(model.loss(), model.forward(pass), labels,
                    activations.deltas(model.last_level(), rows));
  std::vector<int> order;
  ASSERT_TRUE(model
                  .backward(pass, grads,
                            [&](int index) {
                              order.push_back(index);
                              return Status();
                            })
                  .ok());
  std::vector<int> downwards;
  for (int i = static_cast<int>(table.tensors.size()); i-- > 0;) downwards.push_back(i);
  EXPECT_EQ(order, downwards);
  for (std::size_t use = static_cast<std::size_t>(table.parameters()); use < table.tensors.size();
       ++use) {
    const int parameter = table.parameter_of(static_cast<int>(use));
    const std::int64_t to = table.tensors[static_cast<std::size_t>(parameter)].offset;
    for (std::int64_t i = 0; i < table.tensors[use].shape.elems(); ++i) {
      grads[static_cast<std::size_t>(to + i)] +=
          grads[static_cast<std::size_t>(table.tensors[use].offset + i)];
    }
  }
  for (std::size_t i = 0; i < params.size(); i += stride) {
    expect_close(grads[i], slope(params, i, loss), 1e-6, i);
  }
}

TEST(Gradients, T1_Mlp) {
  check_model({"mlp", {12, 9}}, {1, 4, 4}, 1);
  check_model({"mlp", {}}, {5, 1, 1}, 1);
}
TEST(Gradients, T1_Cnn) {
  check_model({"cnn", {}}, {1, 8, 8}, 7);
  check_model({"cnn", {}}, {3, 6, 5}, 11);
}
TEST(Gradients, T1_Convex) {
  check_model({"logistic", {}}, {1, 3, 3}, 1);
  check_model({"linear", {}}, {9, 1, 1}, 1);
}
TEST(Gradients, T1_Resnet) { check_model({"resnet8", {}, 4}, {3, 8, 8}, 17); }
TEST(Gradients, T1_Alexnet) { check_model({"alexnet", {}, 8}, {1, 16, 16}, 49999); }
TEST(Gradients, T1_Gpt) {
  ModelOptions options{"gpt", {}, 8};
  options.heads = 2;
  check_model(options, {5, 1, 1}, 3);
  options.tied = true;
  options.dropout = 0.2;
  check_model(options, {5, 1, 1}, 3);
}

}  // namespace
}  // namespace gradwire::gradients_test
