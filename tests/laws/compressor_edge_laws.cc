// Shapes and values at the edges: what no method may stumble over, whatever it claims.
#include <limits>

#include "tests/laws/law_data.h"

namespace gradwire::laws {
namespace {

using gradwire::testing::CoderRanks;

template <typename T>
bool all_finite(const std::vector<T>& x) {
  return std::all_of(x.begin(), x.end(), [](T value) { return std::isfinite(value); });
}

// One step on `ranks` ranks: it ends well, finite and alike on all of them, and own is no longer
// than what it may be if the method bounds its error.
template <typename T>
void expect_sound(const Compressor& compressor, const Shape& shape,
                  const std::vector<std::vector<T>>& grads) {
  auto ranks = CoderRanks<T>::open(compressor, shape, static_cast<int>(grads.size()));
  ASSERT_TRUE(ranks.has_value()) << ranks.error().message();
  const auto outcome = ranks.value().step(grads, 3);
  ASSERT_TRUE(outcome.status.ok()) << to_string(shape) << outcome.status.message();
  for (std::size_t r = 0; r < grads.size(); ++r) {
    EXPECT_TRUE(all_finite(outcome.mean[r])) << to_string(shape);
    EXPECT_TRUE(all_finite(outcome.own[r])) << to_string(shape);
    EXPECT_TRUE(same_bits(outcome.mean[r], outcome.mean[0])) << to_string(shape);
  }
}

GW_LAW(OddShapes) {
  with_type([this]<typename T>() {
    for (const Shape& shape :
         {Shape::vector(1), Shape::matrix(1, 7), Shape::matrix(7, 1), Shape::matrix(1, 1),
          Shape{{2, 1, 3, 1}, 3}, Shape{{1, 1, 1, 5}, 4}, Shape{{3, 1, 1, 11}, 4},
          Shape::matrix(17, 19), Shape::vector(513), Shape::matrix(2, 4097),
          Shape::matrix(5, 13109)}) {  // beyond 2^16 elements
      expect_sound<T>(compressor(), shape, gradients<T>(shape.elems(), 1, 2, 4));
    }
  });
}

// As many ranks as a test machine runs, beside the 1 to 5 of other laws.
GW_LAW(SixToEightRanks) {
  with_type([this]<typename T>() {
    for (const int size : {6, 7, 8}) {
      const Shape shape = Shape::matrix(37, 5);
      const auto grads = gradients<T>(shape.elems(), 0, size, 2);
      expect_sound<T>(compressor(), shape, grads);
      if (!compressor().traits().mean_is_average_of_own) continue;
      auto ranks = CoderRanks<T>::open(compressor(), shape, size);
      const auto outcome = ranks.value().step(grads, 0);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      const std::vector<double> wanted = average(outcome.own);
      double scale = 1e-300;
      for (const auto& own : outcome.own) scale = std::max(scale, largest(own));
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(outcome.mean[0][i]), wanted[i],
                    rounding<T>(compressor().traits(), size) * scale)
            << "ranks " << size << " element " << i;
      }
    }
  });
}

GW_LAW(DenormalsAndTheLargestNumbers) {
  with_type([this]<typename T>() {
    using Limits = std::numeric_limits<T>;
    const Shape shape = Shape::matrix(30, 5);
    // fp16 ends at 65504, what it makes of larger numbers is infinity by its definition.
    const bool half = compressor().traits().payload_dtype == DType::kF16;
    for (const T size : {Limits::denorm_min(), 3 * Limits::denorm_min(), Limits::min() / 8,
                         Limits::min(), half ? T{60000} : static_cast<T>(1e30)}) {
      auto grads = gradients<T>(shape.elems(), 3, 3, 1);  // of one magnitude
      for (auto& x : grads) {
        for (T& value : x) value = std::copysign(size, value);
      }
      expect_sound<T>(compressor(), shape, grads);
      grads[1].assign(grads[1].size(), T{0});
      grads[2][7] = T{0};
      expect_sound<T>(compressor(), shape, grads);
    }
  });
}

// One element is far above the rest, on one rank; and a rank of zeros beside others.
GW_LAW(ElementsOfAllSizesTogether) {
  with_type([this]<typename T>() {
    const Shape shape = Shape::matrix(40, 33);
    auto grads = gradients<T>(shape.elems(), 0, 3, 1);
    for (T& value : grads[0]) value *= static_cast<T>(1e-30);
    grads[0][1000] = T{1000};
    grads[1].assign(grads[1].size(), T{0});
    expect_sound<T>(compressor(), shape, grads);
    for (auto& x : grads) x.assign(x.size(), T{0});
    expect_sound<T>(compressor(), shape, grads);
    for (auto& x : grads) x.assign(x.size(), -T{0});
    expect_sound<T>(compressor(), shape, grads);
  });
}

GW_LAW(LosslessIfClaimed) {
  with_type([this]<typename T>() {
    using Limits = std::numeric_limits<T>;
    for (int kind = 0; kind < kDataKinds; ++kind) {
      auto grads = gradients<T>(5000, kind, 2, 1);
      const T odd[] = {T{0},
                       -T{0},
                       Limits::denorm_min(),
                       -Limits::min(),
                       Limits::max(),
                       Limits::lowest(),
                       Limits::epsilon()};
      std::copy(std::begin(odd), std::end(odd), grads[0].begin() + 1000);
      auto ranks = CoderRanks<T>::open(compressor(), Shape::vector(5000), 2);
      const auto outcome = ranks.value().step(grads, 0);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      for (std::size_t r = 0; r < 2; ++r) EXPECT_TRUE(same_bits(outcome.own[r], grads[r]));
    }
  });
}

bool claims_lossless(const Compressor& compressor, const CompressorCase&) {
  return compressor.traits().lossless;
}

}  // namespace

std::vector<Law> edge_laws() {
  return {
      {"OddShapes", OddShapes},
      {"SixToEightRanks", SixToEightRanks},
      {"DenormalsAndTheLargestNumbers", DenormalsAndTheLargestNumbers},
      {"ElementsOfAllSizesTogether", ElementsOfAllSizesTogether},
      {"LosslessIfClaimed", LosslessIfClaimed, claims_lossless},
  };
}

}  // namespace gradwire::laws
