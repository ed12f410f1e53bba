// terngrad, global_qsgd and thc against the slow reference, by hand, and against published figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/philox.h"
#include "compress/shared_scale/lane_reader.h"
#include "compress/shared_scale/lane_words.h"
#include "compress/thc/thc.h"
#include "gradwire/registry.h"
#include "tests/reference/shared_scale_reference.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"
#include "tests/support/simd_targets.h"

namespace gradwire {
namespace {

using testing::CoderRanks;
using testing::Codes;
using ::testing::ElementsAre;
using testing::make;
using testing::Vector;

constexpr std::uint64_t kSeed = 1;
constexpr std::uint64_t kTensor = 77;

Vector drawn(std::size_t n, std::uint64_t key, bool lognormal = false) {
  const RandomStream stream(3, RandomUse::kTest, key, 0, 0, 0);
  Vector x(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = stream.normal(i);
    if (lognormal) x[i] = std::exp(1.5 * x[i]) * (stream.word(2 * i) % 2 == 0 ? 1 : -1);
  }
  return x;
}

RandomStream dither(int rank, std::uint64_t step) {
  return {kSeed, RandomUse::kDither, kTensor, rank, 0, step};
}

template <typename T>
std::vector<T> as(const std::vector<std::byte>& bytes) {
  std::vector<T> all(bytes.size() / sizeof(T));
  if (!all.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

// What the coders sent on `ranks` ranks in fp64, bucket by bucket, is what the reference sends.
void expect_reference(
    const std::string& spec, std::vector<testing::ReferenceBucket> buckets,
    const std::vector<Vector>& grads, int most,
    const std::function<std::uint64_t(double x, double scale, std::size_t n, double u)>& code) {
  const auto method = make(spec);
  const auto ranks = static_cast<int>(grads.size());
  const Shape shape = Shape::vector(static_cast<std::int64_t>(grads[0].size()));
  auto coders = CoderRanks<double>::open(*method, shape, ranks, kSeed, kTensor);
  const std::uint64_t step = 5;
  const auto outcome = coders.value().step(grads, step);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  for (int r = 0; r < ranks; ++r) {
    const auto rank = static_cast<std::size_t>(r);
    const RandomStream draws = dither(r, step);
    Codes codes;
    for (const testing::ReferenceBucket& bucket : buckets) {
      const Vector& x = bucket.by_rank[rank];
      for (std::size_t i = 0; i < x.size(); ++i) {
        codes.push_back(
            code(x[i], bucket.scale, x.size(), testing::draw_at(draws, bucket.first + i)));
      }
    }
    const auto limit = static_cast<std::uint64_t>(most * ranks);
    EXPECT_EQ(as<std::uint32_t>(outcome.bytes[1][rank]), testing::lane_words(codes, limit))
        << spec << " rank " << r;
  }
}

TEST(TernGrad, MatchesTheReference) {
  for (const int ranks : {1, 3}) {
    std::vector<Vector> grads;
    testing::ReferenceBucket all;
    for (int r = 0; r < ranks; ++r) {
      grads.push_back(drawn(777, static_cast<std::uint64_t>(r), true));
      all.by_rank.push_back(testing::clipped(grads.back(), 2.5));
    }
    all.share([](const Vector& x) { return testing::up_to_float(testing::largest_in(x)); });
    expect_reference("terngrad", {all}, grads, 2,
                     [](double x, double scale, std::size_t, double u) {
                       return testing::level_code(x, scale, 1, u);
                     });
  }
}

TEST(GlobalQsgd, MatchesTheReference) {
  for (const bool l2 : {false, true}) {
    std::vector<Vector> grads;
    for (std::uint64_t r = 0; r < 4; ++r) grads.push_back(drawn(250, r));
    std::vector<testing::ReferenceBucket> buckets;
    for (std::size_t first = 0; first < 250; first += 64) {
      testing::ReferenceBucket bucket;
      bucket.first = first;
      for (const Vector& g : grads) {
        bucket.by_rank.emplace_back(
            g.begin() + static_cast<std::ptrdiff_t>(first),
            g.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(first + 64, 250)));
      }
      bucket.share([l2](const Vector& x) {
        return testing::up_to_float(l2 ? testing::length_of(x) : testing::largest_in(x));
      });
      buckets.push_back(bucket);
    }
    expect_reference(l2 ? "global_qsgd:bits=4,bucket=64,norm=l2" : "global_qsgd:bits=4,bucket=64",
                     buckets, grads, 14, [](double x, double scale, std::size_t, double u) {
                       return testing::level_code(x, scale, 7, u);
                     });
  }
}

// Two ranks; 100 elements are blocks of 64, 32 and 4.
TEST(Thc, MatchesTheReference) {
  for (const int grid : {15, 31}) {
    const std::vector<Vector> grads{drawn(100, 1), drawn(100, 2, true)};
    const RandomStream signs(kSeed, RandomUse::kHadamardSigns, kTensor, kSharedRank, 0, 5);
    std::vector<testing::ReferenceBucket> buckets;
    std::size_t first = 0;
    for (const std::size_t count : {64, 32, 4}) {
      testing::ReferenceBucket bucket;
      bucket.first = first;
      for (const Vector& g : grads) {
        const auto from = g.begin() + static_cast<std::ptrdiff_t>(first);
        bucket.by_rank.push_back(testing::hadamard(
            Vector(from, from + static_cast<std::ptrdiff_t>(count)), first, signs));
      }
      bucket.share([](const Vector& x) { return testing::up_to_float(testing::length_of(x)); });
      buckets.push_back(bucket);
      first += count;
    }
    const auto table = thc_table(grid);
    expect_reference("thc:block=64,grid=" + std::to_string(grid), buckets, grads, grid,
                     [&](double y, double norm, std::size_t n, double u) {
                       const double z =
                           std::clamp(y * std::sqrt(static_cast<double>(n)) / norm, -2.154, 2.154);
                       const double place = (z / 2.154 + 1) * grid / 2;
                       std::size_t j = 0;
                       while (j + 2 < table.size() && place >= table[j + 1]) ++j;
                       const double gap = table[j + 1] - table[j];
                       return std::uint64_t{u * gap < place - table[j] ? table[j + 1] : table[j]};
                     });
  }
}

// False if the words are unsound.
bool unpack(const LaneWords& lanes, const std::byte* words, std::span<std::uint32_t> sums) {
  LaneReader reader(lanes, words, sums.size());
  for (std::size_t at = 0; at < sums.size(); at += LaneReader::kMost) {
    const std::size_t count = std::min(LaneReader::kMost, sums.size() - at);
    std::copy_n(reader.next(count), count, sums.data() + at);
  }
  return reader.sound();
}

// Wider lanes with more ranks, never an overflow.
TEST(LaneWords, ByHand) {
  const LaneWords four(14, 4);  // sums up to 56: six bits, five to a word
  EXPECT_EQ(four.width(), 6);
  EXPECT_EQ(four.bytes(6), 8u);
  std::array<std::byte, 8> words{};
  four.pack(std::array<std::uint8_t, 6>{14, 4, 7, 8, 0, 3}, words.data());
  EXPECT_EQ(as<std::uint32_t>({words.begin(), words.end()}),
            (std::vector<std::uint32_t>{14 | 4 << 6 | 7 << 12 | 8 << 18, 3}));
  std::vector<std::uint32_t> sums(6);
  EXPECT_TRUE(unpack(four, words.data(), sums));
  EXPECT_THAT(sums, ElementsAre(14, 4, 7, 8, 0, 3));
  words[0] = std::byte{57};  // above what four ranks may send
  EXPECT_FALSE(unpack(four, words.data(), sums));
  words[0] = std::byte{14};
  words[7] = std::byte{1};  // a lane beyond the last element
  EXPECT_FALSE(unpack(four, words.data(), sums));
}

TEST(LaneWords, EverySumOfEveryNumberOfRanksComesBack) {
  for (const int most : {2, 14, 15, 31, 254}) {
    for (const int ranks : {1, 2, 3, 4, 8, 17, 64, 300, 100'000}) {
      const LaneWords lanes(most, ranks);
      ASSERT_TRUE(lanes.fits());
      const std::size_t count = (ranks == 3 ? 601 : 2) * lanes.lanes() + 1;
      std::vector<std::uint8_t> codes(count);
      for (std::size_t i = 0; i < count; ++i) {
        codes[i] = static_cast<std::uint8_t>(i % 3 == 0 ? most : static_cast<int>(i) % most);
      }
      std::vector<std::byte> words(lanes.bytes(count));
      testing::for_each_simd_target([&](const std::string& target) {
        std::ranges::fill(words, std::byte{0xee});
        lanes.pack(codes, words.data());
        ASSERT_EQ(as<std::uint32_t>(words),
                  testing::lane_words(Codes(codes.begin(), codes.end()), lanes.limit()))
            << most << " x " << ranks << ", " << target;
      });
      auto all = as<std::uint32_t>(words);
      for (std::uint32_t& word : all) word *= static_cast<std::uint32_t>(ranks);  // ranks alike
      std::memcpy(words.data(), all.data(), words.size());
      std::vector<std::uint32_t> sums(count);
      ASSERT_TRUE(unpack(lanes, words.data(), sums)) << most << " x " << ranks;
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(sums[i], codes[i] * static_cast<std::uint32_t>(ranks)) << most << " x " << ranks;
      }
    }
  }
  EXPECT_FALSE(LaneWords(254, 20'000'000).fits());
}

// The published 2 log2(n) + 1 bits of a partial sum, as whole lanes.
TEST(TernGrad, BytesByHand) {
  const Shape shape = Shape::vector(1000);
  const auto bytes = [&shape](std::string_view spec, int round, int ranks) {
    return make(spec)->max_payload_bytes(shape, DType::kF32, round, ranks);
  };
  EXPECT_EQ(bytes("terngrad", 0, 4), 4u);
  EXPECT_EQ(bytes("terngrad", 1, 1), 4u * 63);   // 2 bits: 16 to a word
  EXPECT_EQ(bytes("terngrad", 1, 4), 4u * 125);  // 4 bits
  EXPECT_EQ(bytes("terngrad", 1, 8), 4u * 167);  // 5 bits: 6 to a word
  EXPECT_EQ(bytes("terngrad:shared=false", 0, 8), 4u + 200);
  EXPECT_EQ(bytes("global_qsgd:bits=4", 0, 4), 4u * 2);
  EXPECT_EQ(bytes("global_qsgd:bits=4", 1, 4), 4u * 200);
  EXPECT_EQ(bytes("global_qsgd:bits=8", 1, 4), 4u * 334);  // sums up to 1016: 10 bits
  EXPECT_EQ(bytes("thc", 0, 4), 4u * 6);                   // 512 256 128 64 32 8
  EXPECT_EQ(bytes("thc", 1, 4), 4u * 200);                 // sums up to 60
  EXPECT_EQ(bytes("thc:grid=31", 1, 8), 4u * 250);         // sums up to 248: a byte each
}

TEST(TernGrad, KeysAreChecked) {
  const auto refusal = [](std::string_view spec) { return Registry::builtin().make(spec).error(); };
  constexpr Code kInvalid = Code::kInvalidArgument;
  EXPECT_THAT(refusal("terngrad:clip=1"), fails(kInvalid, "terngrad", "'clip'", "'1'", "0"));
  EXPECT_THAT(refusal("terngrad:clip=-1"), fails(kInvalid, "terngrad", "'clip'", "'-1'"));
  EXPECT_THAT(refusal("thc:block=100"), fails(kInvalid, "thc", "'block'", "'100'", "power of two"));
  EXPECT_THAT(refusal("thc:grid=16"), fails(kInvalid, "thc", "'grid'", "'16'", "15", "31"));
  EXPECT_THAT(refusal("global_qsgd:bits=9"),
              fails(kInvalid, "global_qsgd", "'bits'", "'9'", "2 to 8"));
  EXPECT_THAT(refusal("global_qsgd:bits=4,levels=3"),
              fails(kInvalid, "global_qsgd", "'bits'", "'levels'"));
  EXPECT_EQ(make("terngrad:clip=2.5,shared=true")->spec(), "terngrad");
  EXPECT_EQ(make("terngrad:clip=0,shared=false")->spec(), "terngrad:clip=0,shared=false");
  EXPECT_EQ(make("global_qsgd")->spec(), "global_qsgd:bits=4");
  EXPECT_EQ(make("global_qsgd:levels=5,norm=l2,bucket=tensor")->spec(),
            "global_qsgd:levels=5,norm=l2,bucket=tensor");
  EXPECT_EQ(make("thc:31,block=64,clip=2")->spec(), "thc:grid=31,block=64,clip=2");
}

// A constant has no deviation about its mean, and is not clipped to nothing.
TEST(TernGrad, AConstantSurvivesClipping) {
  const auto method = make("terngrad");
  auto ranks = CoderRanks<float>::open(*method, Shape::vector(9), 2);
  const auto outcome =
      ranks.value().step({std::vector<float>(9, 0.5F), std::vector<float>(9, -0.5F)}, 0);
  EXPECT_EQ(outcome.own[0], std::vector<float>(9, 0.5F));
  EXPECT_EQ(outcome.mean[1], std::vector<float>(9, 0.0F));
}

// Of 65,536 elements over 10 seeds, relative to |x|^2: published simulations, ours to 10 %
// (lognormal: a factor 1.5).
TEST(SharedScale, ErrorsArePublished) {
  struct Row {
    const char* spec;
    double gaussian;
    double lognormal;
  };
  for (const Row& row :
       {Row{"terngrad", 1.01, 0.835}, Row{"terngrad:shared=false", 1.01, 0.835},
        Row{"global_qsgd:levels=1", 1.63, 2.68}, Row{"global_qsgd:levels=7", 0.038, 0.233},
        Row{"global_qsgd:levels=127,norm=l2", 5.3e-3, 4.2e-3}}) {
    const auto method = make(row.spec);
    for (const bool lognormal : {false, true}) {
      double sum = 0;
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        const Vector x = drawn(65536, 100 + seed, lognormal);
        auto coder = CoderRanks<double>::open(*method, Shape::vector(65536), 1, seed, kTensor);
        const Vector own = coder.value().step({x}, seed).own[0];
        double error = 0;
        double size = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
          error += (own[i] - x[i]) * (own[i] - x[i]);
          size += x[i] * x[i];
        }
        sum += error / size / 10;
      }
      const double wanted = lognormal ? row.lognormal : row.gaussian;
      const double factor = lognormal ? 1.5 : 1.1;
      EXPECT_LE(sum, wanted * factor) << row.spec << lognormal;
      EXPECT_GE(sum, wanted / factor) << row.spec << lognormal;
    }
  }
}

// Expected squared error of drawing between neighbours of the table and of clamping, by the
// trapezoid rule: no other table of 16 numbers on the grid does better (dynamic programming).
TEST(Thc, TablesAreTheBestOfTheirGrid) {
  constexpr double kClip = 2.154;
  for (const int grid : {15, 31}) {
    const auto at = [grid](int i) { return kClip * (2.0 * i / grid - 1); };
    const auto cost = [&](int i, int j) {
      constexpr int kSteps = 400;
      double sum = 0;
      for (int k = 1; k < kSteps; ++k) {
        const double z = at(i) + (at(j) - at(i)) * k / kSteps;
        sum += (z - at(i)) * (at(j) - z) * std::exp(-z * z / 2);
      }
      return sum * (at(j) - at(i)) / kSteps;
    };
    // best[m][j]: the least error below j of m gaps that end there
    std::vector<std::vector<double>> best(16, std::vector<double>(40, 1e9));
    best[0][0] = 0;
    for (std::size_t m = 1; m < 16; ++m) {
      for (int j = 1; j <= grid; ++j) {
        for (int i = 0; i < j; ++i) {
          const double with = best[m - 1][static_cast<std::size_t>(i)] + cost(i, j);
          best[m][static_cast<std::size_t>(j)] =
              std::min(best[m][static_cast<std::size_t>(j)], with);
        }
      }
    }
    const auto table = thc_table(grid);
    EXPECT_EQ(table[0], 0);
    EXPECT_EQ(table[15], grid);
    double ours = 0;
    for (std::size_t j = 0; j + 1 < table.size(); ++j) ours += cost(table[j], table[j + 1]);
    EXPECT_LE(ours, best[15][static_cast<std::size_t>(grid)] * (1 + 1e-6)) << grid;
  }
}

// Gaussian: 0.0133 of drawing and 0.0073 of clamping. A lone spike is spread and clipped no more.
TEST(Thc, ErrorIsThatOfAGaussianWhateverTheData) {
  const auto method = make("thc");
  for (int kind = 0; kind < 3; ++kind) {
    double sum = 0;
    for (std::uint64_t step = 0; step < 10; ++step) {
      Vector x = drawn(16384, step, kind == 1);
      if (kind == 2) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 1024 == 77 ? x[i] : 0;
      }
      auto coder = CoderRanks<double>::open(*method, Shape::vector(16384), 1, kSeed, kTensor);
      const Vector own = coder.value().step({x}, step).own[0];
      double error = 0;
      for (std::size_t i = 0; i < x.size(); ++i) error += (own[i] - x[i]) * (own[i] - x[i]);
      sum += error / std::pow(testing::length_of(x), 2) / 10;
    }
    // A spike alone becomes +-|x| / 32 everywhere, z = 1 or -1: place 10.982 or 4.018 of the grid,
    // so that drawing costs 0.982 * 0.018 steps^2 of 2 * 2.154 / 15, and nothing is clamped.
    const double wanted = kind == 2 ? 0.001466 : 0.0206;
    EXPECT_NEAR(sum, wanted, 0.2 * wanted) << kind;
  }
}

}  // namespace
}  // namespace gradwire
