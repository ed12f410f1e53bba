// Layers on a device beside the same layers on the host: forward, the derivative by the input and
// by the parameters. How far apart two tensors are is the length of their difference over the
// length of the host's. Where a layer adds up nothing, or in the host's order, the bits are equal.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/gpu/on_device.h"
#include "tests/trainer/layer_run.h"
#include "trainer/cuda/make_kernels.h"
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
#include "trainer/layers/loss.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/relu.h"
#include "trainer/layers/residual.h"

namespace gradwire::layers_test {
namespace {

using gpu::kFirst;
using gpu::kStream;
using gpu::OnDevice;
using gpu::uploaded;

// Of float sums over at most some thousand terms, by whatever order: eps = 6e-8 times the square
// root of their number, and a little.
constexpr double kClose = 2e-6;

std::unique_ptr<LayerKernels<float>> kernels() {
  auto made = make_layer_kernels(kStream);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return std::move(made).value();
}

template <typename Number>
double distance(const std::vector<Number>& host, const std::vector<Number>& there) {
  double off = 0;
  double length = 0;
  EXPECT_EQ(host.size(), there.size());
  for (std::size_t i = 0; i < host.size(); ++i) {
    const double d = static_cast<double>(host[i]) - static_cast<double>(there[i]);
    off += d * d;
    length += static_cast<double>(host[i]) * static_cast<double>(host[i]);
  }
  return length == 0 ? std::sqrt(off) : std::sqrt(off / length);
}

std::span<float> floats(const OnDevice& memory) {
  return {reinterpret_cast<float*>(memory.bytes().data()), memory.bytes().size() / sizeof(float)};
}

// LayerRun's memory on the device.
class RunThere {
 public:
  RunThere(const LayerRun<float>& host, LayerKernels<float>& device)
      : host_(host),
        device_(device),
        x_(uploaded(host.x)),
        params_(uploaded(host.params)),
        y_(uploaded(host.y)),
        scratch_(uploaded(std::vector<float>(
            LayerRun<float>::size(host.layer.scratch_elems(host.rows, MemorySpace::kCuda)), 777))),
        saved_(uploaded(host.saved)),
        stash_(uploaded(host.stash)),
        buffers_(uploaded(host.buffers)),
        statistics_(uploaded(host.statistics)),
        dx_(uploaded(host.dx)),
        grads_(uploaded(host.grads)) {}

  void forward() const { host_.layer.forward(pass()); }
  void backward(const OnDevice& dy) const {
    host_.layer.backward_input(pass(), floats(dy), floats(dx_));
    host_.layer.backward_params(pass(), floats(dy), floats(grads_));
    host_.layer.finish_input(pass(), floats(dy), floats(dx_));
  }
  std::vector<float> y() const { return y_.values<float>(); }
  std::vector<float> dx() const { return dx_.values<float>(); }
  std::vector<float> grads() const { return grads_.values<float>(); }
  std::vector<double> statistics() const { return statistics_.values<double>(); }

 private:
  LayerPass<float> pass() const {
    const ByteSpan sums = statistics_.bytes();
    return {host_.rows,
            floats(params_),
            floats(x_),
            floats(y_),
            floats(scratch_),
            floats(saved_),
            floats(stash_),
            floats(buffers_),
            {reinterpret_cast<double*>(sums.data()), sums.size() / sizeof(double)},
            host_.context,
            &device_};
  }

  const LayerRun<float>& host_;
  LayerKernels<float>& device_;
  OnDevice x_, params_, y_, scratch_, saved_, stash_, buffers_, statistics_, dx_, grads_;
};

struct LayerCase {
  std::string name;
  std::function<std::unique_ptr<Layer<float>>()> make;
  std::int64_t inputs;
  std::int64_t rows = 5;
  bool bits = false;  // the host's
  std::int64_t tokens = 0;
};

void PrintTo(const LayerCase& one, std::ostream* out) { *out << one.name; }

template <class Made, typename... Args>
std::function<std::unique_ptr<Layer<float>>()> of(Args... args) {
  return [=] { return std::make_unique<Made>(args...); };
}

// conv - norm - relu with another conv around it, as a block of a resnet has them.
std::unique_ptr<Layer<float>> block_with_shortcut() {
  const SampleShape in{3, 6, 6};
  auto branch = std::make_unique<Chain<float>>(in);
  branch->add("conv", std::make_unique<Conv2d<float>>(in, 4, ConvOptions{3, 2, 1, 1, false}));
  branch->add("bn", std::make_unique<BatchNorm2d<float>>(branch->output()));
  branch->add("relu", std::make_unique<Relu<float>>(branch->output()));
  auto around = std::make_unique<Chain<float>>(in);
  around->add("conv", std::make_unique<Conv2d<float>>(in, 4, ConvOptions{1, 2, 0, 1, false}));
  return std::make_unique<Residual<float>>(in, std::move(branch), std::move(around));
}

std::unique_ptr<Layer<float>> block_around_norm() {
  const SampleShape in{7, 1, 12};
  auto branch = std::make_unique<Chain<float>>(in);
  branch->add("norm", std::make_unique<LayerNorm<float>>(in));
  branch->add("fc", std::make_unique<Linear<float>>(12, 12, LinearOptions{true, 7}));
  return std::make_unique<Residual<float>>(in, std::move(branch));
}

// A line for every layer, and one more for what it does otherwise.
std::vector<LayerCase> layer_cases() {
  const SampleShape image{6, 9, 11};
  const SampleShape words{13, 1, 40};
  return {
      {"linear", of<Linear<float>>(75, 41), 75, 37},
      {"linear_of_positions", of<Linear<float>>(12, 70, LinearOptions{false, 9}), 108},
      {"relu", of<Relu<float>>(image), image.elems(), 5, true},
      {"gelu", of<Gelu<float>>(image), image.elems()},
      {"flatten", of<Flatten<float>>(image), image.elems(), 5, true},
      {"dropout", of<Dropout<float>>(SampleShape{7, 3, 3}, 0.3, std::string("a.dropout")), 63, 9,
       true},
      {"layer_norm", of<LayerNorm<float>>(words), words.elems()},
      {"batch_norm", of<BatchNorm2d<float>>(image), image.elems()},
      {"conv", of<Conv2d<float>>(image, std::int64_t{10}, std::int64_t{3}), image.elems()},
      {"conv_in_groups", of<Conv2d<float>>(image, std::int64_t{4}, ConvOptions{5, 2, 2, 2, true}),
       image.elems()},
      {"max_pool", of<MaxPool2d<float>>(image), image.elems(), 5, true},
      {"max_pool_overlapping", of<MaxPool2d<float>>(image, std::int64_t{3}, std::int64_t{2}),
       image.elems(), 5, true},
      {"avg_pool", of<AvgPool2d<float>>(image, std::int64_t{2}), image.elems(), 5, true},
      {"avg_pool_of_planes",
       [=] { return std::make_unique<AvgPool2d<float>>(AvgPool2d<float>::global(image)); },
       image.elems(), 5, true},
      {"embedding", of<Embedding<float>>(EmbeddingShape{11, 13, 150}), 13, 12, true, 11},
      {"attention", of<CausalAttention<float>>(std::int64_t{35}, std::int64_t{24}, std::int64_t{3}),
       35 * 72, 2},
      {"residual", block_around_norm, 84},
      {"residual_with_shortcut", block_with_shortcut, 108},
  };
}

class LayersThere : public ::testing::TestWithParam<LayerCase> {
 protected:
  static void expect_close(const char* what, const std::vector<float>& host,
                           const std::vector<float>& there) {
    if (GetParam().bits) {
      EXPECT_EQ(host, there) << what;
    } else {
      EXPECT_LE(distance(host, there), kClose) << what;
    }
  }
  static LayerRun<float> on_host(const Layer<float>& layer) {
    const LayerCase& one = GetParam();
    std::vector<float> x = draws<float>(one.rows * one.inputs, 3);
    for (float& id : x) {
      if (one.tokens > 0) id = std::floor(std::min(std::abs(id) * 4, float(one.tokens - 1)));
    }
    LayerRun<float> run(layer, one.rows, x, draws<float>(parameter_elems(layer.parameters()), 4));
    run.context = {PassMode::kTrain, 5, 6, 7};
    return run;
  }
};

TEST_P(LayersThere, ComputeWhatTheHostComputes) {
  const auto layer = GetParam().make();
  LayerRun<float> host = on_host(*layer);
  const auto device = kernels();
  const RunThere there(host, *device);
  const RunThere again(host, *device);
  const std::vector<float> dy = draws<float>(host.rows * layer->output().elems(), 8);
  const OnDevice dy_there = uploaded(dy);
  host.forward();
  host.backward(dy);
  for (const RunThere* run : {&there, &again}) {
    run->forward();
    run->backward(dy_there);
  }
  ASSERT_TRUE(device->status().ok()) << device->status().message();
  expect_close("forward", host.y, there.y());
  expect_close("backward_input", host.dx, there.dx());
  expect_close("backward_params", host.grads, there.grads());
  // Sums of a normalised layer's inputs nearly cancel: they are off by their terms' rounding.
  const double off = distance(host.statistics, there.statistics());
  RecordProperty("statistics", format("%.3g", off));
  EXPECT_LE(off, kClose);
  EXPECT_EQ(there.y(), again.y());
  EXPECT_EQ(there.dx(), again.dx());
  EXPECT_EQ(there.grads(), again.grads());
}

TEST_P(LayersThere, JudgeAsTheHostDoes) {
  const auto layer = GetParam().make();
  LayerRun<float> host = on_host(*layer);
  host.context.mode = PassMode::kEvaluate;
  for (std::size_t i = 0; i < host.buffers.size(); ++i) {
    host.buffers[i] += 0.01F * static_cast<float>(i);
  }
  const auto device = kernels();
  const RunThere there(host, *device);
  host.forward();
  there.forward();
  ASSERT_TRUE(device->status().ok()) << device->status().message();
  expect_close("forward", host.y, there.y());
}

INSTANTIATE_TEST_SUITE_P(Every, LayersThere, ::testing::ValuesIn(layer_cases()),
                         [](const auto& info) { return info.param.name; });

// A tied head's gradient is apart from the embedding's.
TEST(TiedEmbeddingThere, HeadHasAGradientOfItsOwn) {
  const EmbeddingShape shape{9, 5, 33};
  const TiedHead<float> head(shape);
  const std::vector<float> token = draws<float>(9 * 33, 1);
  LayerRun<float> host(head, 4, draws<float>(4 * 5 * 33, 2), token);
  const auto device = kernels();
  const RunThere there(host, *device);
  const std::vector<float> dy = draws<float>(4 * 5 * 9, 4);
  host.forward();
  there.forward();
  EXPECT_LE(distance(host.y, there.y()), kClose);
  host.backward(dy);
  there.backward(uploaded(dy));
  EXPECT_LE(distance(host.dx, there.dx()), kClose);
  EXPECT_LE(distance(host.grads, there.grads()), kClose);
  EXPECT_TRUE(device->status().ok());
}

class LossesThere : public ::testing::TestWithParam<Loss> {};

TEST_P(LossesThere, AreTheHosts) {
  constexpr std::int64_t kClasses = 45;
  for (const std::int64_t count : {1, 7, 300}) {
    std::vector<float> outputs = draws<float>(count * kClasses, 9);
    std::vector<std::uint32_t> labels;
    for (std::int64_t i = 0; i < count; ++i) {
      labels.push_back(static_cast<std::uint32_t>(i * i % kClasses));
      outputs[static_cast<std::size_t>(i * kClasses + (i + 3) % kClasses)] = 3;  // two largest
      outputs[static_cast<std::size_t>(i * kClasses + i * i % kClasses)] += i % 2 == 0 ? 9 : 0;
    }
    std::vector<float> by_outputs(outputs.size());
    const double loss = mean_loss<float>(GetParam(), outputs, labels, by_outputs);
    const auto device = kernels();
    const OnDevice outputs_there = uploaded(outputs);
    const OnDevice labels_there = uploaded(labels);
    const OnDevice by_there(by_outputs.size() * sizeof(float));
    const OnDevice each(labels.size() * 2 * sizeof(double));
    const OnDevice found(2 * sizeof(double));
    const auto doubles = [](const OnDevice& memory) {
      return std::span(reinterpret_cast<double*>(memory.bytes().data()),
                       memory.bytes().size() / sizeof(double));
    };
    const std::span labels_span(reinterpret_cast<const std::uint32_t*>(labels_there.bytes().data()),
                                labels.size());
    const auto compute = GetParam() == Loss::kSquares ? &LayerKernels<float>::squared_error
                                                      : &LayerKernels<float>::cross_entropy;
    ((*device).*compute)(floats(outputs_there), labels_span, floats(by_there), doubles(each),
                         doubles(found));
    ASSERT_TRUE(device->status().ok()) << device->status().message();
    EXPECT_NEAR(found.values<double>()[0], loss, 1e-12 * loss);
    EXPECT_EQ(found.values<double>()[1],
              static_cast<double>(count_correct<float>(outputs, labels)));
    EXPECT_LE(distance(by_outputs, by_there.values<float>()), kClose);
  }
}

INSTANTIATE_TEST_SUITE_P(Both, LossesThere, ::testing::Values(Loss::kCrossEntropy, Loss::kSquares),
                         [](const auto& info) {
                           return info.param == Loss::kSquares ? "squares" : "cross_entropy";
                         });

// A diverged model scores like one that always says class 0, there too.
TEST(LossesOfNan, CountAsOnTheHost) {
  const float nan = std::nanf("");
  const std::vector<float> outputs{nan, 1, 2, 1, nan, 2, nan, nan, nan, 5, 5, 1};
  const std::vector<std::uint32_t> labels{0, 2, 0, 0};
  const auto device = kernels();
  const OnDevice outputs_there = uploaded(outputs);
  const OnDevice labels_there = uploaded(labels);
  const OnDevice each(labels.size() * 2 * sizeof(double));
  const OnDevice found(2 * sizeof(double));
  device->cross_entropy(
      floats(outputs_there),
      {reinterpret_cast<const std::uint32_t*>(labels_there.bytes().data()), labels.size()}, {},
      {reinterpret_cast<double*>(each.bytes().data()), 8},
      {reinterpret_cast<double*>(found.bytes().data()), 2});
  ASSERT_TRUE(device->status().ok());
  EXPECT_TRUE(std::isnan(found.values<double>()[0]));
  EXPECT_EQ(found.values<double>()[1], static_cast<double>(count_correct<float>(outputs, labels)));
}

}  // namespace
}  // namespace gradwire::layers_test
