#include "trainer/data/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/philox.h"

namespace gradwire {
namespace {

constexpr std::int64_t kTrain = 4096;
constexpr std::int64_t kTest = 1024;

// The numbers of one set, whose own the key is; `use` tells one array of a set from another.
RandomStream draws_of(std::uint64_t set, int use) {
  constexpr std::uint64_t kBehindOrders = 16;  // data/order.cc has keys below it
  return {0, RandomUse::kDataOrder, kBehindOrders + set, kSharedRank, use, 0};
}

// The first samples train, the others test.
DataSet split(std::string name, SampleShape shape, std::int64_t classes, Normalisation meaning,
              Samples all) {
  Samples test;
  test.pixels.assign(all.pixels.begin() + kTrain * shape.elems(), all.pixels.end());
  test.labels.assign(all.labels.begin() + kTrain, all.labels.end());
  all.pixels.resize(static_cast<std::size_t>(kTrain * shape.elems()));
  all.labels.resize(static_cast<std::size_t>(kTrain));
  return DataSet(std::move(name), shape, classes, std::move(meaning), std::move(all),
                 std::move(test));
}

class Words {
 public:
  explicit Words(RandomStream stream) : stream_(stream) {}
  template <std::size_t Count>
  const char* one_of(const std::array<const char*, Count>& words) {
    return words[stream_.word(used_++) % Count];
  }
  std::uint32_t below(std::uint32_t count) { return stream_.word(used_++) % count; }

 private:
  RandomStream stream_;
  std::uint64_t used_ = 0;
};

}  // namespace

DataSet make_separable() {
  constexpr std::int64_t kClasses = 10;
  constexpr std::int64_t kFeatures = 64;
  const RandomStream centres = draws_of(1, 0);
  const RandomStream noise = draws_of(1, 1);
  Samples all;
  for (std::int64_t s = 0; s < kTrain + kTest; ++s) {
    const std::int64_t label = s % kClasses;
    all.labels.push_back(static_cast<std::uint8_t>(label));
    for (std::int64_t f = 0; f < kFeatures; ++f) {
      const double value = 128 +
                           32 * centres.normal(static_cast<std::uint64_t>(label * kFeatures + f)) +
                           24 * noise.normal(static_cast<std::uint64_t>(s * kFeatures + f));
      all.pixels.push_back(static_cast<std::uint8_t>(std::lround(std::clamp(value, 0.0, 255.0))));
    }
  }
  return split("separable", {kFeatures, 1, 1}, kClasses,
               {64, std::vector<double>(kFeatures, 2), std::vector<double>(kFeatures, 1)},
               std::move(all));
}

DataSet make_sparse() {
  constexpr std::int64_t kFeatures = 1000;
  constexpr int kOnes = 10;
  const RandomStream weights = draws_of(2, 0);
  const RandomStream places = draws_of(2, 1);
  const RandomStream wrong = draws_of(2, 2);
  Samples all;
  all.pixels.resize(static_cast<std::size_t>((kTrain + kTest) * kFeatures));
  for (std::int64_t s = 0; s < kTrain + kTest; ++s) {
    double sum = 0;
    for (int one = 0; one < kOnes; ++one) {
      const std::uint32_t place =
          places.word(static_cast<std::uint64_t>(s * kOnes + one)) % kFeatures;
      std::uint8_t& value = all.pixels[static_cast<std::size_t>(s * kFeatures + place)];
      if (value == 0) sum += weights.normal(place);
      value = 1;
    }
    const bool flipped = wrong.uniform(static_cast<std::uint64_t>(s)) < 0.05f;
    all.labels.push_back(static_cast<std::uint8_t>((sum > 0) != flipped ? 1 : 0));
  }
  return split("sparse", {kFeatures, 1, 1}, 2,
               {1, std::vector<double>(kFeatures, 0), std::vector<double>(kFeatures, 1)},
               std::move(all));
}

std::string grammar_text(std::int64_t sentences) {
  constexpr std::array<const char*, 8> kNouns{"rank",  "ring",   "tensor", "gradient",
                                              "model", "bucket", "worker", "tree"};
  constexpr std::array<const char*, 6> kVerbs{"send", "sum", "keep", "round", "share", "wait for"};
  constexpr std::array<const char*, 6> kKinds{"small ", "sparse ", "late ", "old ", "", ""};
  Words words(draws_of(3, 0));
  std::string text;
  const auto phrase = [&](bool many) {
    text += many ? words.one_of(std::array{"some ", "all ", "the "})
                 : words.one_of(std::array{"a ", "every ", "the "});
    text += words.one_of(kKinds);
    text += words.one_of(kNouns);
    if (many) text += 's';
  };
  for (std::int64_t i = 0; i < sentences; ++i) {
    const bool many = words.below(2) == 0;
    phrase(many);
    const std::string verb = words.one_of(kVerbs);
    const std::size_t blank = std::min(verb.find(' '), verb.size());
    text += ' ' + verb.substr(0, blank) + (many ? "" : "s") + verb.substr(blank) + ' ';
    phrase(words.below(2) == 0);
    text += ".\n";
  }
  return text;
}

}  // namespace gradwire
