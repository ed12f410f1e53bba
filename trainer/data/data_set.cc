#include "trainer/data/data_set.h"

#include <cmath>
#include <utility>

#include "base/check.h"

namespace gradwire {

DataSet::DataSet(std::string name, SampleShape shape, std::int64_t classes,
                 Normalisation normalisation, Samples train, Samples test)
    : name_(std::move(name)),
      shape_(shape),
      classes_(classes),
      normalisation_(std::move(normalisation)),
      train_(std::move(train)),
      test_(std::move(test)),
      meaning_(static_cast<std::size_t>(shape.channels)) {
  GW_CHECK(normalisation_.mean.size() == meaning_.size());
  GW_CHECK(normalisation_.deviation.size() == meaning_.size());
  for (std::size_t c = 0; c < meaning_.size(); ++c) {
    for (std::size_t v = 0; v < 256; ++v) {
      const double level = static_cast<double>(v) / normalisation_.range;
      meaning_[c][v] =
          static_cast<float>((level - normalisation_.mean[c]) / normalisation_.deviation[c]);
    }
  }
}

void DataSet::take(const Samples& from, std::span<const std::uint32_t> indices,
                   std::span<float> out, std::span<std::uint8_t> labels) const {
  const auto plane = static_cast<std::size_t>(shape_.height * shape_.width);
  GW_CHECK(out.size() == indices.size() * plane * meaning_.size());
  GW_CHECK(labels.size() == indices.size());
  float* target = out.data();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    labels[i] = from.labels[indices[i]];
    const std::uint8_t* pixel = from.pixels.data() + indices[i] * plane * meaning_.size();
    for (const std::array<float, 256>& meaning : meaning_) {
      for (std::size_t p = 0; p < plane; ++p) *target++ = meaning[*pixel++];
    }
  }
}

Normalisation measure_normalisation(const Samples& samples, SampleShape shape) {
  Normalisation found;
  const std::int64_t plane = shape.height * shape.width;
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    std::uint64_t sum = 0;
    std::uint64_t squares = 0;
    for (std::int64_t s = 0; s < samples.count(); ++s) {
      const std::uint8_t* pixel = samples.pixels.data() + (s * shape.channels + c) * plane;
      for (std::int64_t p = 0; p < plane; ++p) {
        sum += pixel[p];
        squares += static_cast<std::uint64_t>(pixel[p]) * pixel[p];
      }
    }
    const double count = static_cast<double>(samples.count() * plane);
    const double mean = static_cast<double>(sum) / count;
    const double variance = static_cast<double>(squares) / count - mean * mean;
    // A constant channel keeps its scale instead of dividing by zero.
    const double deviation = variance > 0 ? std::sqrt(variance) : found.range;
    found.mean.push_back(mean / found.range);
    found.deviation.push_back(deviation / found.range);
  }
  return found;
}

}  // namespace gradwire
