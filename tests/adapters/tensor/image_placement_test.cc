// Mistakes in how a model for images is divided by samples or tiles, planted one by one: each is
// named, and where nobody checks most of them let the loss go down another way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/adapters/tensor/tensor_ranks.h"
#include "trainer/layers/avg_pool2d.h"
#include "trainer/layers/batch_norm2d.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/dropout.h"
#include "trainer/layers/flatten.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/parallel/column_linear.h"
#include "trainer/layers/parallel/input_sum.h"
#include "trainer/layers/parallel/output_loss.h"
#include "trainer/layers/parallel/own_samples.h"
#include "trainer/layers/parallel/own_tile.h"
#include "trainer/layers/parallel/row_linear.h"
#include "trainer/layers/parallel/sample_input.h"
#include "trainer/layers/parallel/tile_conv2d.h"
#include "trainer/layers/parallel/tile_mean.h"
#include "trainer/layers/relu.h"
#include "trainer/model.h"

namespace gradwire::testing::image_placement_test {
namespace {

constexpr int kRanks = 2;
constexpr std::int64_t kRows = 4;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kHidden = 6;
constexpr std::int64_t kClasses = 4;
const SampleShape kImage{2, 8, 8};
const ConvOptions kConv{3, 1, 1, 1, false};

using Images = Model<double>;
using L = std::unique_ptr<Layer<double>>;
using Make = std::function<L(const Images& model, const TensorShare& share)>;

// The layers of a right model, any of which may be another one, or none. A parameter is summed
// where `sums` says so, in addition to convolutions' and norms'.
struct Planted {
  bool tiles = false;
  std::function<Make(const std::string& name, Make right)> layer = [](const std::string&,
                                                                      Make right) { return right; };
  std::function<void(ParameterInfo&)> change = [](ParameterInfo&) {};
};

TensorShare share_of(const Planted& plant, int rank) {
  if (!plant.tiles) {
    return {.ranks = kRanks, .rank = rank, .layout = TensorShare::Layout::kSamples};
  }
  return {.ranks = kRanks,
          .rank = rank,
          .layout = TensorShare::Layout::kTiles,
          .tile_rows = 1,
          .tile_columns = kRanks};
}

L columns(const Images& model, const TensorShare& share) {
  return std::make_unique<ColumnLinear<double>>(model.output().elems(),
                                                ColumnShare{kHidden, share.part(kHidden)});
}

// "fc2" is a row layer, and by tiles the only linear one.
std::vector<std::pair<std::string, Make>> by_samples() {
  return {
      {"samples",
       [](const Images& m, const TensorShare& s) {
         return std::make_unique<OwnSamples<double>>(m.output(), s);
       }},
      {"conv",
       [](const Images& m, const TensorShare&) {
         return std::make_unique<Conv2d<double>>(m.output(), kChannels, kConv);
       }},
      {"bn",
       [](const Images& m, const TensorShare& s) {
         return std::make_unique<BatchNorm2d<double>>(m.output(), s.ranks);
       }},
      {"relu", [](const Images& m,
                  const TensorShare&) { return std::make_unique<Relu<double>>(m.output()); }},
      {"pool", [](const Images& m,
                  const TensorShare&) { return std::make_unique<MaxPool2d<double>>(m.output()); }},
      {"flatten", [](const Images& m,
                     const TensorShare&) { return std::make_unique<Flatten<double>>(m.output()); }},
      {"fc1",
       [](const Images& m, const TensorShare& s) {
         return std::make_unique<SampleInput<double>>(columns(m, s), m.output().elems(), s);
       }},
      {"fc2", [](const Images&, const TensorShare& s) {
         return std::make_unique<RowLinear<double>>(RowShare{kHidden, s.part(kHidden)}, kClasses);
       }}};
}

std::vector<std::pair<std::string, Make>> by_tiles() {
  std::vector<std::pair<std::string, Make>> layers = by_samples();
  layers.resize(5);
  layers[0] = {"tiles", [](const Images& m, const TensorShare& s) {
                 return std::make_unique<OwnTile<double>>(m.output(), s);
               }};
  layers[1].second = [](const Images& m, const TensorShare& s) {
    return std::make_unique<TileConv2d<double>>(m.output(), kChannels, kConv, s);
  };
  layers.emplace_back("mean", [](const Images& m, const TensorShare& s) {
    return std::make_unique<TileMean<double>>(m.output(), s);
  });
  layers.emplace_back("fc2", [](const Images& m, const TensorShare&) {
    return std::make_unique<Linear<double>>(m.output().elems(), kClasses);
  });
  return layers;
}

Images planted(const Planted& plant, const TensorShare& share) {
  Images model(kImage);
  model.share_with(share.ranks);
  for (const auto& [name, right] : plant.tiles ? by_tiles() : by_samples()) {
    if (L layer = plant.layer(name, right)(model, share)) model.add(name, std::move(layer));
  }
  model.set_init([&](ParameterInfo& info) {
    info.summed = info.name.starts_with("conv") || info.name.starts_with("bn");
    plant.change(info);
  });
  return model;
}

Status check(const Planted& plant) { return planted(plant, share_of(plant, 0)).check_placement(); }

// Losses of a few steps of plain descent on rank 0.
std::vector<double> losses_of(const Planted& plant) {
  std::vector<double> losses;
  on_tensor_ranks(kRanks, [&](TensorRank& at) {
    const Images model = planted(plant, share_of(plant, at.rank()));
    const ParameterTable& table = model.parameters();
    std::vector<double> params(static_cast<std::size_t>(parameter_elems(table)));
    init_parameters<double>(table, 5, params);
    std::vector<double> grads(params.size());
    Activations<double> activations = std::move(model.make_activations(kRows)).value();
    const std::vector<std::uint32_t> labels{0, 3, 1, 2};
    OutputLoss<double> loss(model.loss(), model.class_share(), &at.peers, kRows);
    for (int step = 0; step < 4; ++step) {
      ModelPass<double> pass{params, kRows, &activations};
      pass.context = {PassMode::kTrain, 3, static_cast<std::uint64_t>(step), 0};
      pass.peers = &at.peers;
      const std::vector<double> x = draws<double>(kRows * kImage.elems(), 8);
      std::copy(x.begin(), x.end(), activations.values(0, kRows).begin());
      model.forward(pass);
      const double mean = loss.mean(activations.values(model.last_level(), kRows), labels,
                                    activations.deltas(model.last_level(), kRows));
      if (at.rank() == 0) losses.push_back(mean);
      EXPECT_TRUE(model.backward(pass, grads, [](int) { return Status(); }).ok());
      for (const ParameterInfo& info : table) {
        if (!info.summed) continue;
        at.peers.start_sum(std::span(grads).subspan(static_cast<std::size_t>(info.offset),
                                                    static_cast<std::size_t>(info.shape.elems())));
        at.peers.await();
      }
      for (std::size_t i = 0; i < params.size(); ++i) params[i] -= 0.5 * grads[i];
    }
  });
  return losses;
}

struct Mistake {
  std::string what;
  Planted plant;
  std::vector<std::string> named;  // in the message
  bool runs = true;                // to an end, and the rest is the right model
};

// Layer `name` is another one.
Planted with(bool tiles, const std::string& name, const Make& wrong) {
  return {tiles, [=](const std::string& layer, Make right) {
            if (layer == name) return wrong;
            return right;
          }};
}

Planted with_change(bool tiles, const std::string& parameter, bool summed) {
  Planted plant{tiles};
  plant.change = [=](ParameterInfo& info) {
    if (info.name == parameter) info.summed = summed;
  };
  return plant;
}

L none(const Images&, const TensorShare&) { return nullptr; }
L norm_alone(const Images& m, const TensorShare&) {
  return std::make_unique<BatchNorm2d<double>>(m.output());
}

std::vector<Mistake> mistakes_by_samples() {
  return {
      {"a convolution of some samples, whose gradient is not summed",
       with_change(false, "conv.weight", false),
       {"layer 'conv'", "'conv.weight'", "not added up", "expected a sum"}},
      {"a norm of some samples",
       with(false, "bn", norm_alone),
       {"layer 'bn'", "reads V by samples"}},
      {"samples that all have, taken for a part",
       with(false, "samples", none),
       {"layer 'conv'", "'conv.weight'", "is added up", "expected none"},
       false},
      {"features of some samples, taken for all",
       with(false, "fc1",
            [](const Images& m, const TensorShare& s) {
              return std::make_unique<InputSum<double>>(columns(m, s));
            }),
       {"layer 'fc1'", "reads V by samples", "expected I"},
       false},
      {"a bias that all have alike, summed",
       with_change(false, "fc2.bias", true),
       {"layer 'fc2'", "'fc2.bias'", "is added up", "expected none"}},
      {"tiles of some samples",
       with(false, "conv",
            [](const Images& m, const TensorShare& s) {
              return std::make_unique<TileConv2d<double>>(m.output(), kChannels, kConv, s);
            }),
       {"layer 'conv'", "reads V by samples", "expected V by tiles"},
       false},
  };
}

std::vector<Mistake> mistakes_by_tiles() {
  return {
      {"a convolution of a tile without what is around it",
       with(true, "conv",
            [](const Images& m, const TensorShare&) {
              return std::make_unique<Conv2d<double>>(m.output(), kChannels, kConv);
            }),
       {"layer 'conv'", "reads V by tiles", "expected I or V by samples"}},
      {"a convolution of a tile, whose gradient is not summed",
       with_change(true, "conv.weight", false),
       {"layer 'conv'", "'conv.weight'", "not added up", "expected a sum"}},
      {"a norm of a tile", with(true, "bn", norm_alone), {"layer 'bn'", "reads V by tiles"}},
      {"a norm of a tile, whose shift is not summed",
       with_change(true, "bn.bias", false),
       {"layer 'bn'", "'bn.bias'", "not added up"}},
      {"the mean of a tile",
       with(true, "mean",
            [](const Images& m, const TensorShare&) {
              return std::make_unique<AvgPool2d<double>>(AvgPool2d<double>::global(m.output()));
            }),
       {"layer 'mean'", "reads V by tiles"}},
      {"windows over the edges of tiles",
       with(true, "pool",
            [](const Images& m, const TensorShare&) {
              return std::make_unique<MaxPool2d<double>>(m.output(), 3, 1);
            }),
       {"layer 'pool'", "reads V by tiles"},
       false},
      {"dropout that does not know its tile",
       with(true, "relu",
            [](const Images& m, const TensorShare&) {
              return std::make_unique<Dropout<double>>(m.output(), 0.5, "d");
            }),
       {"layer 'relu'", "reads V by tiles"},
       false},
      {"a linear layer that all have alike, summed",
       with_change(true, "fc2.weight", true),
       {"layer 'fc2'", "'fc2.weight'", "is added up", "expected none"}},
      {"a linear layer of a tile",
       with(true, "mean",
            [](const Images& m, const TensorShare&) {
              return std::make_unique<Relu<double>>(m.output());
            }),
       {"layer 'fc2'", "reads V by tiles"},
       false},
  };
}

std::vector<Mistake> mistakes() {
  std::vector<Mistake> all = mistakes_by_samples();
  for (Mistake& more : mistakes_by_tiles()) all.push_back(std::move(more));
  return all;
}

TEST(ImagePlacement, RightModelsPass) {
  for (const bool tiles : {false, true}) {
    EXPECT_TRUE(check({tiles}).ok()) << check({tiles}).message();
  }
}

TEST(ImagePlacement, EveryMistakeIsNamed) {
  for (const Mistake& mistake : mistakes()) {
    SCOPED_TRACE(mistake.what);
    const Status seen = check(mistake.plant);
    EXPECT_EQ(seen.code(), Code::kInvalidArgument);
    for (const std::string& name : mistake.named) {
      EXPECT_THAT(std::string(seen.message()), ::testing::HasSubstr(name));
    }
  }
}

// Samples that nobody gathers are not what the loss reads.
TEST(ImagePlacement, OutputsOfSomeSamplesAreNamed) {
  Images model(kImage);
  model.share_with(kRanks);
  model.add("samples", std::make_unique<OwnSamples<double>>(kImage, share_of({}, 0)));
  EXPECT_THAT(std::string(model.check_placement().message()),
              ::testing::HasSubstr("outputs are V by samples (expected I"));
}

TEST(ImagePlacement, MostMistakesChangeALossSilently) {
  const std::vector<double> samples = losses_of({false});
  const std::vector<double> tiles = losses_of({true});
  int silent = 0;
  int ran = 0;
  for (const Mistake& mistake : mistakes()) {
    if (!mistake.runs) continue;
    ++ran;
    const std::vector<double> losses = losses_of(mistake.plant);
    const std::vector<double>& right = mistake.plant.tiles ? tiles : samples;
    ASSERT_EQ(losses.size(), right.size()) << mistake.what;
    if (std::abs(losses.back() - right.back()) > 1e-6) ++silent;
  }
  EXPECT_EQ(silent, ran);
  EXPECT_GE(silent, 8);
}

}  // namespace
}  // namespace gradwire::testing::image_placement_test
