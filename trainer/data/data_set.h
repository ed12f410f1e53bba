// Images with labels, as bytes, and how a byte becomes a number for the model.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/layers/layer.h"

namespace gradwire {

// Samples one after another: pixels (count, channels, height, width), labels (count).
struct Samples {
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
};

// A pixel byte v of channel c means (v / range - mean[c]) / deviation[c].
struct Normalisation {
  double range = 255;
  std::vector<double> mean;
  std::vector<double> deviation;
};

// Read only once loaded: ranks that are threads share one. Pixels stay bytes, a quarter of the
// memory of floats; a table per channel turns them into floats batch by batch.
class DataSet {
 public:
  DataSet(std::string name, SampleShape shape, std::int64_t classes, Normalisation normalisation,
          Samples train, Samples test);

  const std::string& name() const { return name_; }
  SampleShape shape() const { return shape_; }
  std::int64_t classes() const { return classes_; }
  const Normalisation& normalisation() const { return normalisation_; }
  const Samples& train() const { return train_; }
  const Samples& test() const { return test_; }

  // out (indices.size(), channels, height, width) = the normalised samples, labels their labels.
  // `from` is train() or test() of this set, indices lie within it.
  void take(const Samples& from, std::span<const std::uint32_t> indices, std::span<float> out,
            std::span<std::uint8_t> labels) const;

 private:
  std::string name_;
  SampleShape shape_;
  std::int64_t classes_;
  Normalisation normalisation_;
  Samples train_;
  Samples test_;
  std::vector<std::array<float, 256>> meaning_;  // per channel: byte to value
};

// Mean and standard deviation (of the population) of v / 255 per channel over all samples, from
// exact integer sums: the same on every machine.
Normalisation measure_normalisation(const Samples& samples, SampleShape shape);

}  // namespace gradwire
