// Slices long enough for long parts: what several threads pack and unpack is what one does.
#include "compress/threaded_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "base/workers.h"
#include "gradwire/registry.h"

namespace gradwire::threaded_format_test {
namespace {

constexpr std::size_t kElems = (std::size_t{9} << 20) + 4321;

std::vector<float> gradient() {
  const RandomStream draws(3, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<std::uint32_t> words(kElems);
  draws.words(0, words);
  std::vector<float> x(kElems);
  for (std::size_t i = 0; i < kElems; ++i) x[i] = static_cast<float>(words[i]) * 0x1p-31f - 1;
  return x;
}

class LongSlices : public ::testing::TestWithParam<const char*> {};

TEST_P(LongSlices, PackAndUnpackAsOneThreadDoes) {
  const auto method = std::move(Registry::builtin().make(GetParam())).value();
  const Shape shape = Shape::vector(static_cast<std::int64_t>(kElems));
  const std::vector<float> x = gradient();
  Workers workers(3);
  auto alone = std::move(method->open_slices(shape, {})).value();
  auto together = std::move(open_slices_on(&workers, *method, shape, {})).value();
  const Slice slice{.step = 2, .tensor = 7};
  std::vector<std::byte> wanted(alone->bytes(shape.elems(), 0));
  std::vector<std::byte> seen(wanted.size());
  const ConstTensorView src = const_view_of<float>(std::span<const float>(x));
  ASSERT_TRUE(alone->pack(src, slice, wanted, {}).has_value());
  ASSERT_TRUE(together->pack(src, slice, seen, {}).has_value());
  EXPECT_TRUE(seen == wanted);
  std::vector<float> one(kElems);
  std::vector<float> many(kElems);
  ASSERT_TRUE(alone->unpack(wanted, slice, view_of(std::span(one)), {}).ok());
  ASSERT_TRUE(together->unpack(wanted, slice, view_of(std::span(many)), {}).ok());
  EXPECT_EQ(std::memcmp(one.data(), many.data(), kElems * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(Methods, LongSlices,
                         ::testing::Values("absmax:bits=8", "qsgd:bits=8", "natural",
                                           "signsgd:bucket=1000"));

}  // namespace
}  // namespace gradwire::threaded_format_test
