// What the tests of elementwise codecs share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/philox.h"
#include "compress/kernel_format.h"
#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::testing {

inline const SliceKey kSomeKey{3, {.step = 5, .tensor = 7, .rank = 1, .stage = 1, .first = 41}};

template <typename T>
std::vector<T> round_trip(std::string_view spec, const std::vector<T>& grad) {
  const auto compressor = make(spec);
  auto ranks =
      CoderRanks<T>::open(*compressor, Shape::vector(static_cast<std::int64_t>(grad.size())), 1);
  const auto outcome = ranks.value().step({grad}, 0);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  return outcome.mean[0];
}

inline void expect_refused(const std::vector<const char*>& specs) {
  for (const char* spec : specs) {
    const auto made = Registry::builtin().make(std::string_view(spec));
    ASSERT_FALSE(made.has_value()) << spec;
    EXPECT_EQ(made.error().code(), Code::kInvalidArgument) << spec;
  }
}

// Gaussian, heavy tails, zeros, one value, powers of two, very small and very large numbers.
template <typename T>
std::vector<T> mixed_values(std::size_t count) {
  const RandomStream data(5, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<T> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double z = data.normal(i);
    x[i] = static_cast<T>(i < count / 2 ? z : std::exp(1.5 * z) * (i % 3 == 0 ? -1 : 1));
    if (i % 97 < 5)
      x[i] = static_cast<T>(std::ldexp(i % 2 == 0 ? 1 : -1, static_cast<int>(i % 31) - 15));
    if (i >= 600 && i < 680) x[i] = 0;
    if (i >= 680 && i < 720) x[i] = T{2.5};
    if (i >= 900 && i < 940) x[i] = static_cast<T>(1e-42 * z);
    if (i >= 960 && i < 970) x[i] = static_cast<T>(1e37 * z);
    if (i == 1100) x[i] = std::numeric_limits<T>::infinity();
    if (i == 1200) x[i] = std::numeric_limits<T>::quiet_NaN();
  }
  return x;
}

template <typename T, typename Kernel>
void expect_bytes(const Kernel& kernel, const std::vector<T>& x,
                  const std::vector<std::uint8_t>& wanted, const std::string& what) {
  std::vector<std::byte> wire(kernel.bytes(x.size(), sizeof(T)) + 1);
  const auto payload = ByteSpan(wire).subspan(1);  // not aligned
  ASSERT_TRUE(kernel.template encode<T>(kSomeKey, x, payload).ok()) << what;
  ASSERT_EQ(payload.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(std::to_integer<int>(payload[i]), wanted[i]) << "byte " << i << " of " << what;
  }
}

}  // namespace gradwire::testing
