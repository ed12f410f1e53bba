// Images with labels, as bytes, and how a byte becomes a number for the model; or text as tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "trainer/data/order.h"
#include "trainer/layers/layer.h"

namespace gradwire {

// Samples one after another: pixels (count, channels, height, width), labels (count). Of a text:
// every window of `context` tokens that has a token behind it, numbered by its first one.
struct Samples {
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
  std::vector<std::uint32_t> tokens = {};
  std::int64_t context = 0;  // 0: no text
  std::int64_t count() const;
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
  // A text: a sample's values are its tokens' numbers, its labels the tokens that follow them, one
  // for each. `train` and `test` have the same context.
  DataSet(std::string name, std::vector<std::string> vocabulary, Samples train, Samples test);

  const std::string& name() const { return name_; }
  SampleShape shape() const { return shape_; }
  std::int64_t classes() const { return classes_; }
  const Normalisation& normalisation() const { return normalisation_; }
  const Samples& train() const { return train_; }
  const Samples& test() const { return test_; }
  // What token number i stands for; empty but for texts.
  const std::vector<std::string>& vocabulary() const { return vocabulary_; }
  // Of all samples and the vocabulary: other contents of the same files have another.
  std::uint64_t contents_hash() const;
  bool is_text() const { return train_.context > 0; }
  std::int64_t labels_per_sample() const { return is_text() ? train_.context : 1; }

  // Samples of one epoch: all images, or as many windows as a text has side by side.
  std::int64_t epoch_samples() const;
  // The order of training. kEpoch and kNone take windows side by side, kUniform any of them.
  DataOrder order(std::uint64_t seed, Shuffle shuffle) const;
  // The samples of test() that a model is judged by: all images, or 1,600 windows of a text that
  // are always the same (100 batches of 16), or those of judge_in_order().
  std::span<const std::uint32_t> evaluation() const { return evaluation_; }
  // Of a text, before anybody reads this: evaluation() becomes the first `most` of its windows that
  // follow one another without overlap, 0: all of them. Of all, every token but the first is
  // predicted once; the last window may be shorter (labels_of()). kInvalidArgument: fewer windows.
  Status judge_in_order(std::int64_t most);
  // Labels of samples of test(). A window that reaches beyond the text's end has fewer than others;
  // they are its first ones, and such a window is the last of its samples.
  std::int64_t labels_of(std::span<const std::uint32_t> samples) const;

  // out (indices.size(), channels, height, width) = the normalised samples, labels
  // (indices.size(), labels_per_sample()) their labels. `from` is train() or test() of this set,
  // indices lie within it. What a window has behind the text's end is token 0.
  void take(const Samples& from, std::span<const std::uint32_t> indices, std::span<float> out,
            std::span<std::uint32_t> labels) const;

 private:
  void take_windows(const Samples& from, std::span<const std::uint32_t> starts,
                    std::span<float> out, std::span<std::uint32_t> labels) const;

  std::string name_;
  SampleShape shape_;
  std::int64_t classes_;
  Normalisation normalisation_;
  Samples train_;
  Samples test_;
  std::vector<std::array<float, 256>> meaning_;  // per channel: byte to value
  std::vector<std::string> vocabulary_;
  std::vector<std::uint32_t> evaluation_;
};

// Mean and standard deviation (of the population) of v / 255 per channel over all samples, from
// exact integer sums: the same on every machine.
Normalisation measure_normalisation(const Samples& samples, SampleShape shape);

}  // namespace gradwire
