// The suite itself; size, bound, unbiasedness, linearity and average, agreement, determinism, spec.
#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "tests/laws/law_data.h"
#include "tests/support/fails.h"

namespace gradwire::laws {

using gradwire::testing::CoderRanks;

// A program may take the laws of large tensors alone.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CompressorLaws);

void CompressorLaws::SetUp() {
  auto made = GetParam().registry->make(std::string_view(GetParam().one.spec));
  ASSERT_TRUE(made.has_value()) << made.error().message();
  static_cast<JudgedMethod&>(*this) = JudgedMethod(GetParam(), std::move(made).value());
}

TEST_P(CompressorLaws, Hold) { GetParam().law->check(*this); }

std::vector<Law> all_laws() {
  std::vector<Law> all;
  for (const auto& laws :
       {claim_laws(), edge_laws(), hostile_laws(), slice_laws(), state_laws(), thread_laws()}) {
    all.insert(all.end(), laws.begin(), laws.end());
  }
  return all;
}

std::vector<CompressorSubject> subjects(const Registry& registry,
                                        const std::vector<CompressorCase>& cases) {
  static const std::vector<Law> laws = all_laws();
  const auto shared = std::make_shared<const Registry>(registry);
  std::vector<CompressorSubject> all;
  for (const CompressorCase& one : cases) {
    const auto made = registry.make(std::string_view(one.spec));
    for (const Law& law : laws) {
      // What cannot be made fails every law.
      const bool applies =
          !made.has_value() || law.applies == nullptr || law.applies(*made.value(), one);
      if (!applies) continue;
      for (const DType dtype : {DType::kF32, DType::kF64}) {
        all.push_back({shared, one, dtype, &law});
      }
    }
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<CompressorSubject>& info) {
  std::string name = info.param.one.spec;
  if (info.param.law != nullptr) name = std::string(info.param.law->name) + "_" + name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name + "_" + std::string(to_string(info.param.dtype));
}

namespace {

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      Shape::vector(0),       Shape::vector(1),  Shape::vector(7),    Shape::matrix(1000, 3),
      Shape::matrix(3, 1000), {{4, 3, 2, 5}, 4}, Shape::vector(65537)};
  return all;
}

// Whether a brief law leaves a shape out on so many ranks: the long one is tried on three.
bool leaves_out(const Shape& shape, int ranks) { return shape.elems() > 60000 && ranks != 3; }

const std::array<Shape, 2> kBoundedShapes{Shape::vector(7), Shape::matrix(1000, 3)};

struct Estimate {
  double mean = 0;
  double deviation = 0;  // of the mean
};
Estimate mean_and_its_deviation(const std::vector<double>& samples) {
  const auto n = static_cast<double>(samples.size());
  double sum = 0;
  double squares = 0;
  for (const double x : samples) {
    sum += x;
    squares += x * x;
  }
  return {sum / n, std::sqrt(std::max(0.0, squares / n - sum * sum / n / n) / n)};
}

GW_LAW(SizeIsWithinItsClaim) {
  with_type([this]<typename T>() {
    for (const Shape& shape : shapes()) {
      for (const int ranks : {1, 3}) {
        if (brief() && leaves_out(shape, ranks)) continue;
        auto opened = CoderRanks<T>::open(compressor(), shape, ranks);
        ASSERT_TRUE(opened.has_value()) << opened.error().message();
        const auto outcome = opened.value().step(gradients<T>(shape.elems(), 0, ranks, 1), 1);
        ASSERT_TRUE(outcome.status.ok()) << to_string(shape) << outcome.status.message();
        for (std::size_t round = 0; round < outcome.bytes.size(); ++round) {
          const std::size_t most =
              compressor().max_payload_bytes(shape, dtype(), static_cast<int>(round), ranks);
          const RoundKind kind = compressor().round_kind(static_cast<int>(round), dtype(), ranks);
          EXPECT_TRUE(kind.fixed || !compressor().traits().fixed_payload);
          for (const auto& payload : outcome.bytes[round]) {
            ASSERT_LE(payload.size(), most);
            if (kind.fixed) {
              ASSERT_EQ(payload.size(), most);
            }
          }
        }
      }
    }
  });
}

GW_LAW(RefusesOtherTensorsThanItsOwn) {
  with_type([this]<typename T>() {
    auto coder = compressor().open(Shape::vector(5), {.dtype = dtype()});
    std::vector<T> data(6);
    std::vector<std::int32_t> other(5);
    const TensorView all = view_of(std::span<T>(data));
    EXPECT_EQ(coder.value()->begin(all, 0, {}).code(), Code::kInvalidArgument);
    EXPECT_EQ(coder.value()->begin(view_of(std::span(other)), 0, {}).code(),
              Code::kInvalidArgument);
    ASSERT_TRUE(coder.value()->begin(all.slice(0, 5), 0, {}).ok());
    std::vector<std::byte> none;
    EXPECT_EQ(coder.value()->encode(0, none, {}).error().code(), Code::kInvalidArgument);
    const Compressor::Placement cuda{.dtype = dtype(), .device = {MemorySpace::kCuda, 0}};
    EXPECT_EQ(compressor().open(Shape::vector(5), cuda).error().code(), Code::kUnsupported);
    EXPECT_EQ(compressor().open(Shape::vector(5), {.dtype = DType::kI32}).error().code(),
              Code::kUnsupported);
  });
}

GW_LAW(TwoEqualShapesDoNotMeet) {
  with_type([this]<typename T>() {
    const Shape shape = Shape::matrix(20, 9);
    auto a = CoderRanks<T>::open(compressor(), shape, 2, 1, 5);
    auto b = CoderRanks<T>::open(compressor(), shape, 2, 1, 6);
    auto a_alone = CoderRanks<T>::open(compressor(), shape, 2, 1, 5);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const auto grads = gradients<T>(shape.elems(), 0, 2, step);
      const auto beside = a.value().step(grads, step);
      ASSERT_TRUE(b.value().step(gradients<T>(shape.elems(), 1, 2, step), step).status.ok());
      const auto alone = a_alone.value().step(grads, step);
      EXPECT_EQ(beside.bytes, alone.bytes);
      EXPECT_TRUE(same_bits(beside.mean[0], alone.mean[0]));
    }
  });
}

// Random methods: the mean over steps, with four standard errors. Of a contraction in the mean:
// what error feedback would contribute.
GW_LAW(ErrorIsWithinItsBound) {
  with_type([this]<typename T>() {
    for (const Shape& shape : kBoundedShapes) {
      const ErrorBound bound = compressor().bound(shape);
      if (bound.kind == ErrorBound::Kind::kNone) continue;
      const bool variance = bound.kind == ErrorBound::Kind::kVariance;
      const double most = variance ? bound.value : 1 - bound.value;
      for (int kind = 0; kind < kDataKinds; ++kind) {
        auto ranks = CoderRanks<T>::open(compressor(), shape, 3);
        const auto grads = gradients<T>(shape.elems(), kind, 3, 1);
        const double size = bound.over_ranks ? squared(largest_of(grads)) : squared(grads[1]);
        std::vector<double> errors;
        const auto draws_differ = [&errors] {
          return errors.size() == 2 && errors[0] != errors[1];
        };
        std::uint64_t steps = variance ? 200 : 2;
        for (std::uint64_t step = 0; step < steps; ++step) {
          const auto outcome = ranks.value().step(grads, step);
          ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
          const double scale = variance ? 1 : bound.scale;
          errors.push_back(squared_distance(grads[1], outcome.own[1], scale) / size);
          if (draws_differ()) steps = 200;
        }
        const auto [mean, deviation] = mean_and_its_deviation(errors);
        const double slack = steps > 2 ? 4 * deviation : 0;
        EXPECT_LE(mean, most * (1 + 1e-5) + 1e-12 + slack) << "data " << kind;
      }
    }
  });
}

// E|mean over S steps - x|^2 = (error of one step) / S for independent draws; a bias would stay. Of
// element i it is v_i / S, spread by sqrt(2) v_i / S, which counts where one element has most of
// the error.
GW_LAW(UnbiasedIfClaimed) {
  with_type([this]<typename T>() {
    const std::int64_t n = 3000;
    const int steps = 400;
    for (int kind = 0; kind < kDataKinds; ++kind) {
      auto ranks = CoderRanks<T>::open(compressor(), Shape::vector(n), 1);
      const auto grads = gradients<T>(n, kind, 1, 1);
      std::vector<double> sum(grads[0].size());
      std::vector<double> variance(grads[0].size());
      double error = 0;
      double along = 0;
      for (int step = 0; step < steps; ++step) {
        const auto own = ranks.value().step(grads, static_cast<std::uint64_t>(step)).own[0];
        error += squared_distance(own, grads[0]) / steps;
        for (std::size_t i = 0; i < own.size(); ++i) {
          const double off = static_cast<double>(own[i]) - static_cast<double>(grads[0][i]);
          sum[i] += static_cast<double>(own[i]);
          variance[i] += off * off / steps;
          along += off * static_cast<double>(grads[0][i]) / steps;
        }
      }
      double of_mean = 0;
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const double bias = sum[i] / steps - static_cast<double>(grads[0][i]);
        of_mean += bias * bias;
      }
      const double slack = 1e-12 * squared(grads[0]);
      const double spread = std::sqrt(2 * squared(variance)) / steps;
      EXPECT_LE(of_mean, 2 * error / steps + 4 * spread + slack) << "data " << kind;
      // Each draw is independent, so the projection's deviation is at most |error| |x| / sqrt(S).
      EXPECT_LE(std::abs(along), 4 * std::sqrt(error * squared(grads[0]) / steps) + slack);
    }
  });
}

// Beside a spike, where a draw moves an element once in hundreds of steps: together the small
// elements arrive with the weight that they have. What is below every draw's reach never does, and
// no single one of them would show it.
GW_LAW(SmallElementsAreSentIfUnbiased) {
  with_type([this]<typename T>() {
    const std::int64_t n = 3000;
    const int steps = 400;
    auto ranks = CoderRanks<T>::open(compressor(), Shape::vector(n), 1);
    const auto grads = gradients<T>(n, 2, 1, 1);
    const std::size_t spike = grads[0].size() / 2;
    double gap = 0;      // of what arrived along the signs
    double squares = 0;  // of single errors
    for (int step = 0; step < steps; ++step) {
      const auto own = ranks.value().step(grads, static_cast<std::uint64_t>(step)).own[0];
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (i == spike) continue;
        const double error = static_cast<double>(own[i]) - static_cast<double>(grads[0][i]);
        gap += grads[0][i] < 0 ? -error : error;
        squares += error * error;
      }
    }
    EXPECT_LE(std::abs(gap), 5 * std::sqrt(squares) + 1e-9 * steps * n);
  });
}

GW_LAW(MeanIsTheAverageOfOwn) {
  const Traits traits = compressor().traits();
  with_type([this, &traits]<typename T>() {
    for (const Shape& shape : shapes()) {
      for (const int size : {1, 2, 3, 5}) {
        if (brief() && leaves_out(shape, size)) continue;
        auto ranks = CoderRanks<T>::open(compressor(), shape, size);
        for (std::uint64_t step = 0; step < 2; ++step) {
          const auto grads = gradients<T>(shape.elems(), static_cast<int>(step), size, step);
          const auto outcome = ranks.value().step(grads, step);
          ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
          const std::vector<double> wanted = average(outcome.own);
          double scale = 1e-300;
          for (const auto& own : outcome.own) scale = std::max(scale, largest(own));
          const double tolerance = rounding<T>(traits, size) * scale;
          for (std::size_t i = 0; i < wanted.size(); ++i) {
            ASSERT_NEAR(static_cast<double>(outcome.mean[0][i]), wanted[i], tolerance)
                << to_string(shape) << " ranks " << size << " element " << i;
          }
        }
      }
    }
  });
}

GW_LAW(RanksAgreeBitForBit) {
  with_type([this]<typename T>() {
    for (const Shape& shape : shapes()) {
      for (const int size : {2, 3, 4}) {
        if (brief() && leaves_out(shape, size)) continue;
        auto ranks = CoderRanks<T>::open(compressor(), shape, size);
        auto in_place = CoderRanks<T>::open(compressor(), shape, size);
        for (std::uint64_t step = 0; step < 2; ++step) {
          const auto grads = gradients<T>(shape.elems(), 1, size, step);
          const auto outcome = ranks.value().step(grads, step);
          ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
          const auto other = in_place.value().step_in_place(grads, step);
          for (std::size_t r = 0; r < grads.size(); ++r) {
            EXPECT_TRUE(same_bits(outcome.mean[r], outcome.mean[0])) << "rank " << r;
            EXPECT_TRUE(same_bits(other.mean[r], outcome.mean[0])) << "in place, rank " << r;
            EXPECT_TRUE(same_bits(other.own[r], outcome.own[r])) << "in place, rank " << r;
          }
        }
      }
    }
  });
}

GW_LAW(SpecParsesToItself) {
  const std::string canonical = compressor().spec();
  auto again = registry().make(canonical);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(again.value()->spec(), canonical);
  with_type([&]<typename T>() {
    const Shape shape = Shape::matrix(30, 7);
    const auto grads = gradients<T>(shape.elems(), 0, 2, 1);
    auto ours = CoderRanks<T>::open(compressor(), shape, 2);
    auto theirs = CoderRanks<T>::open(*again.value(), shape, 2);
    EXPECT_EQ(ours.value().step(grads, 3).bytes, theirs.value().step(grads, 3).bytes);
  });
}

GW_LAW(UnknownKeysAreNamed) {
  const std::string spec = law_case().spec;
  const std::string last_stage = spec.substr(spec.rfind('|') + 1);  // the whole where there is one
  const std::string more = last_stage.find(':') == std::string::npos ? ":colour=7" : ",colour=7";
  const auto made = registry().make(spec + more);
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error(), fails(Code::kInvalidArgument, "'colour'"));
}

bool claims_unbiased(const Compressor& compressor, const CompressorCase&) {
  return compressor.traits().unbiased;
}
bool averages(const Compressor& compressor, const CompressorCase&) {
  return compressor.traits().mean_is_average_of_own;
}
bool is_bounded(const Compressor& compressor, const CompressorCase&) {
  return std::any_of(kBoundedShapes.begin(), kBoundedShapes.end(), [&](const Shape& shape) {
    return compressor.bound(shape).kind != ErrorBound::Kind::kNone;
  });
}

}  // namespace

std::vector<Law> claim_laws() {
  return {
      {"SizeIsWithinItsClaim", SizeIsWithinItsClaim},
      {"RefusesOtherTensorsThanItsOwn", RefusesOtherTensorsThanItsOwn},
      {"TwoEqualShapesDoNotMeet", TwoEqualShapesDoNotMeet},
      {"ErrorIsWithinItsBound", ErrorIsWithinItsBound, is_bounded},
      {"UnbiasedIfClaimed", UnbiasedIfClaimed, claims_unbiased},
      {"SmallElementsAreSentIfUnbiased", SmallElementsAreSentIfUnbiased, claims_unbiased},
      {"MeanIsTheAverageOfOwn", MeanIsTheAverageOfOwn, averages},
      {"RanksAgreeBitForBit", RanksAgreeBitForBit},
      {"SpecParsesToItself", SpecParsesToItself},
      {"UnknownKeysAreNamed", UnknownKeysAreNamed},
  };
}

}  // namespace gradwire::laws
