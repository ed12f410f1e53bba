// Analytic gradients against central differences, in double.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "base/philox.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/cross_entropy.h"
#include "trainer/layers/flatten.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/relu.h"
#include "trainer/models.h"

namespace gradwire {
namespace {

using Values = std::vector<double>;

Values draws(std::int64_t count, std::uint64_t seed) {
  const RandomStream stream(seed, RandomUse::kTest, 1, kSharedRank, 0, 0);
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = stream.normal(i);
  return values;
}

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

void expect_close(double analytic, double numeric, std::size_t i) {
  EXPECT_NEAR(analytic, numeric, 1e-7 * std::max(1.0, std::abs(numeric))) << "element " << i;
}

// f = sum of weight * y for fixed random weights, so that df/dy is known.
void check_layer(const Layer<double>& layer, std::int64_t in, std::int64_t rows) {
  Values x = draws(rows * in, 11);
  Values params = draws(parameter_elems(layer.parameters()), 12);
  const Values dy = draws(rows * layer.output().elems(), 13);
  Values y(dy.size());
  Values scratch(static_cast<std::size_t>(layer.scratch_elems()));
  const LayerPass<double> pass{rows, params, x, y, scratch};
  const auto f = [&] {
    layer.forward(pass);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  Values dx(x.size(), 777);
  Values grads(params.size(), 777);
  f();
  layer.backward_params(pass, dy, grads);
  layer.backward_input(pass, dy, dx);
  for (std::size_t i = 0; i < x.size(); ++i) expect_close(dx[i], slope(x, i, f), i);
  for (std::size_t i = 0; i < params.size(); ++i) expect_close(grads[i], slope(params, i, f), i);
}

TEST(Gradients, Linear) { check_layer(Linear<double>(7, 5), 7, 3); }
TEST(Gradients, Relu) { check_layer(Relu<double>({2, 3, 4}), 24, 3); }
TEST(Gradients, Flatten) { check_layer(Flatten<double>({2, 3, 4}), 24, 3); }
TEST(Gradients, MaxPool2d) { check_layer(MaxPool2d<double>({2, 4, 5}), 40, 3); }
TEST(Gradients, Conv2d) {
  check_layer(Conv2d<double>({2, 5, 4}, 3, 3), 40, 2);
  check_layer(Conv2d<double>({1, 3, 3}, 2, 5), 9, 2);
}

TEST(Gradients, CrossEntropy) {
  Values logits = draws(4 * 6, 14);
  const std::vector<std::uint8_t> labels{5, 0, 3, 3};
  Values delta(logits.size());
  cross_entropy<double>(logits, labels, delta);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    expect_close(delta[i],
                 slope(logits, i, [&] { return cross_entropy<double>(logits, labels, {}); }), i);
  }
}

// Every `stride`-th parameter of a whole model, at its real initialisation.
void check_model(const ModelOptions& options, SampleShape input, std::size_t stride) {
  auto made = make_model<double>(options, input, 10);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const Model<double>& model = made.value();
  Values params(static_cast<std::size_t>(parameter_elems(model.parameters())));
  init_parameters<double>(model.parameters(), 7, params);
  const std::vector<std::uint8_t> labels{3, 1, 4, 1};
  const std::int64_t rows = 4;
  auto activations = std::move(model.make_activations(rows)).value();
  const Values x = draws(rows * input.elems(), 15);
  std::copy(x.begin(), x.end(), activations.values(0, rows).begin());
  const auto loss = [&] {
    return cross_entropy<double>(model.forward(params, rows, activations), labels, {});
  };
  Values grads(params.size(), 777);
  const auto logits = model.forward(params, rows, activations);
  cross_entropy<double>(logits, labels, activations.deltas(model.last_level(), rows));
  std::vector<int> order;
  ASSERT_TRUE(model
                  .backward(params, rows, activations, grads,
                            [&](int index) {
                              order.push_back(index);
                              return Status();
                            })
                  .ok());
  std::vector<int> downwards;
  for (int i = static_cast<int>(model.parameters().size()); i-- > 0;) downwards.push_back(i);
  EXPECT_EQ(order, downwards);
  for (std::size_t i = 0; i < params.size(); i += stride) {
    expect_close(grads[i], slope(params, i, loss), i);
  }
}

TEST(Gradients, Mlp) {
  check_model({"mlp", {12, 9}}, {1, 4, 4}, 1);
  check_model({"mlp", {}}, {5, 1, 1}, 1);
}
TEST(Gradients, Cnn) {
  check_model({"cnn", {}}, {1, 8, 8}, 7);
  check_model({"cnn", {}}, {3, 6, 5}, 11);
}

}  // namespace
}  // namespace gradwire
