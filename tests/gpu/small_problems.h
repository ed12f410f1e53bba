// What tests train on a device: little data, every family of models.
#pragma once

#include <cstring>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "device/host_copy.h"
#include "trainer/models.h"
#include "trainer/precision.h"
#include "trainer/training.h"

namespace gradwire::gpu {

inline constexpr std::int64_t kClasses = 10;

inline Samples drawn_images(std::int64_t count, SampleShape shape, std::uint64_t seed) {
  const RandomStream draws(seed, RandomUse::kTest, 3, kSharedRank, 0, 0);
  Samples samples;
  for (std::int64_t i = 0; i < count; ++i) {
    samples.labels.push_back(static_cast<std::uint8_t>(i % kClasses));
    // Brighter where the class says so: there is something to learn.
    for (std::int64_t p = 0; p < shape.elems(); ++p) {
      const auto element = static_cast<std::uint64_t>(i * shape.elems() + p);
      const std::uint32_t light = p % kClasses == i % kClasses ? 128 : 0;
      samples.pixels.push_back(static_cast<std::uint8_t>(light + draws.word(element) % 128));
    }
  }
  return samples;
}

inline DataSet images(SampleShape shape) {
  const std::vector<double> half(static_cast<std::size_t>(shape.channels), 0.5);
  return {"images",
          shape,
          kClasses,
          {255, half, half},
          drawn_images(64, shape, 1),
          drawn_images(8, shape, 2)};
}

inline Samples drawn_tokens(std::int64_t count, std::int64_t context, std::uint64_t seed) {
  const RandomStream draws(seed, RandomUse::kTest, 4, kSharedRank, 0, 0);
  Samples samples;
  samples.context = context;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t follows = samples.tokens.empty() ? 0 : samples.tokens.back() + 1;
    const auto element = static_cast<std::uint64_t>(i);
    samples.tokens.push_back((draws.word(element) % 4 == 0 ? draws.word(element) / 4 : follows) %
                             13);
  }
  return samples;
}

inline DataSet text() {
  return {"text", std::vector<std::string>(13, "word"), drawn_tokens(400, 6, 1),
          drawn_tokens(60, 6, 2)};
}

struct Family {
  std::string name;
  ModelOptions model;
  SampleShape image;  // of no elements: text
  std::int64_t steps = 6;
};

inline void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

// A line for every family.
inline std::vector<Family> families() {
  const auto gpt = [](bool tied, double dropout) {
    ModelOptions options{"gpt", {}, 12};
    options.heads = 3;
    options.tied = tied;
    options.dropout = dropout;
    return options;
  };
  const SampleShape small{1, 8, 8};
  return {{"mlp", {"mlp", {33, 16}}, small},
          {"logistic", {"logistic", {}}, small},
          {"linear", {"linear", {}}, small},
          {"cnn", {"cnn", {}}, {3, 9, 7}},
          {"resnet8", {"resnet8", {}, 4}, {3, 8, 8}},
          {"resnet20", {"resnet20", {}, 4}, {3, 8, 8}, 2},
          {"alexnet", {"alexnet", {}, 32}, {1, 16, 16}, 2},
          {"gpt", gpt(false, 0), {0, 0, 0}},
          {"gpt_tied_with_dropout", gpt(true, 0.2), {0, 0, 0}}};
}

struct SmallProblem {
  DataSet data;
  Model<float> model;
};

inline SmallProblem small_problem(const Family& family) {
  DataSet data = family.image.elems() == 0 ? text() : images(family.image);
  Model<float> model =
      std::move(make_model<float>(family.model, data.shape(), data.classes())).value();
  return {std::move(data), std::move(model)};
}

// What tensors hold, wherever they lie, one after another.
inline std::vector<std::vector<float>> contents(const std::vector<NamedTensor>& tensors) {
  std::vector<std::vector<float>> all;
  for (const NamedTensor& named : tensors) {
    const HostCopy copy = std::move(HostCopy::of(named.tensor)).value();
    const auto elems = static_cast<std::size_t>(named.tensor.elems());
    std::vector<float>& values = all.emplace_back(elems);
    if (named.tensor.dtype() == DType::kF32) {
      std::memcpy(values.data(), copy.bytes().data(), copy.bytes().size());
    } else {
      load(precision_of(named.tensor.dtype()),
           {reinterpret_cast<const std::uint16_t*>(copy.bytes().data()), elems}, values);
    }
  }
  return all;
}

}  // namespace gradwire::gpu
