#include "trainer/data/data_set.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kEvaluationWindows = 1600;
constexpr std::uint64_t kEvaluationSeed = 0;  // never the run's: all seeds are judged alike

}  // namespace

std::int64_t Samples::count() const {
  if (context == 0) return static_cast<std::int64_t>(labels.size());
  return std::max<std::int64_t>(static_cast<std::int64_t>(tokens.size()) - context, 0);
}

DataSet::DataSet(std::string name, SampleShape shape, std::int64_t classes,
                 Normalisation normalisation, Samples train, Samples test)
    : name_(std::move(name)),
      shape_(shape),
      classes_(classes),
      normalisation_(std::move(normalisation)),
      train_(std::move(train)),
      test_(std::move(test)),
      meaning_(static_cast<std::size_t>(shape.channels)),
      evaluation_(static_cast<std::size_t>(test_.count())) {
  std::iota(evaluation_.begin(), evaluation_.end(), 0u);
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

DataSet::DataSet(std::string name, std::vector<std::string> vocabulary, Samples train, Samples test)
    : name_(std::move(name)),
      shape_{train.context, 1, 1},
      classes_(static_cast<std::int64_t>(vocabulary.size())),
      train_(std::move(train)),
      test_(std::move(test)),
      vocabulary_(std::move(vocabulary)) {
  GW_CHECK(train_.context > 0 && train_.context == test_.context);
  DataOrder windows(kEvaluationWindows, kEvaluationSeed, Shuffle::kUniform, test_.count());
  if (test_.count() == 0) return;
  const std::span<const std::uint32_t> starts = windows.epoch(0);
  evaluation_.assign(starts.begin(), starts.end());
}

std::int64_t DataSet::epoch_samples() const {
  return is_text() ? (train_.count() + train_.context - 1) / train_.context : train_.count();
}

DataOrder DataSet::order(std::uint64_t seed, Shuffle shuffle) const {
  const std::int64_t step = shuffle == Shuffle::kUniform ? 1 : labels_per_sample();
  return {epoch_samples(), seed, shuffle, train_.count(), step};
}

void DataSet::take_windows(const Samples& from, std::span<const std::uint32_t> starts,
                           std::span<float> out, std::span<std::uint32_t> labels) const {
  const auto context = static_cast<std::size_t>(from.context);
  GW_CHECK(out.size() == starts.size() * context && labels.size() == out.size());
  for (std::size_t i = 0; i < starts.size(); ++i) {
    GW_CHECK(starts[i] + 1 < from.tokens.size());
    const std::uint32_t* token = from.tokens.data() + starts[i];
    const std::size_t there = std::min(context, from.tokens.size() - 1 - starts[i]);
    const std::span<float> row = out.subspan(i * context, context);
    const std::span<std::uint32_t> row_labels = labels.subspan(i * context, context);
    for (std::size_t t = 0; t < there; ++t) {
      row[t] = static_cast<float>(token[t]);
      row_labels[t] = token[t + 1];
    }
    std::fill(row.begin() + static_cast<std::ptrdiff_t>(there), row.end(), 0.0F);
    std::fill(row_labels.begin() + static_cast<std::ptrdiff_t>(there), row_labels.end(), 0U);
  }
}

Status DataSet::judge_in_order(std::int64_t most) {
  const std::int64_t context = test_.context;
  const auto predicted = static_cast<std::int64_t>(test_.tokens.size()) - 1;
  if (context == 0 || predicted < 1) {
    return {Code::kInvalidArgument, "data set " + name_ + ": no windows (expected a text)"};
  }
  const std::int64_t windows = (predicted + context - 1) / context;
  if (most > windows) {
    return {Code::kInvalidArgument,
            format("data set %s: %lld windows of %lld tokens to evaluate (expected at most %lld)",
                   name_.c_str(), static_cast<long long>(most), static_cast<long long>(context),
                   static_cast<long long>(windows))};
  }
  evaluation_.resize(static_cast<std::size_t>(most == 0 ? windows : most));
  for (std::size_t i = 0; i < evaluation_.size(); ++i) {
    evaluation_[i] = static_cast<std::uint32_t>(i * static_cast<std::size_t>(context));
  }
  return {};
}

std::int64_t DataSet::labels_of(std::span<const std::uint32_t> samples) const {
  const std::int64_t all = static_cast<std::int64_t>(samples.size()) * labels_per_sample();
  if (!is_text() || samples.empty()) return all;
  const auto behind = static_cast<std::int64_t>(test_.tokens.size()) - 1 - samples.back();
  return all - std::max<std::int64_t>(test_.context - behind, 0);
}

void DataSet::take(const Samples& from, std::span<const std::uint32_t> indices,
                   std::span<float> out, std::span<std::uint32_t> labels) const {
  if (from.context > 0) return take_windows(from, indices, out, labels);
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

std::uint64_t DataSet::contents_hash() const {
  std::vector<std::uint64_t> parts;
  for (const Samples* samples : {&train_, &test_}) {
    parts.push_back(hash_bytes(std::as_bytes(std::span(samples->pixels))));
    parts.push_back(hash_bytes(std::as_bytes(std::span(samples->labels))));
    parts.push_back(hash_bytes(std::as_bytes(std::span(samples->tokens))));
  }
  for (const std::string& word : vocabulary_) {
    parts.push_back(hash_bytes(std::as_bytes(std::span(word))));
  }
  return hash_bytes(std::as_bytes(std::span(parts)));
}

}  // namespace gradwire
