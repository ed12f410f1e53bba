#include "device/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "gradwire/buffer.h"

namespace gradwire::pages_test {
namespace {

constexpr std::size_t kPage = 4096;

TEST(Pages, DroppedMemoryTakesNoneAndReadsAsZeros) {
  const auto allocated = Buffer::allocate(64 * kPage);
  ASSERT_TRUE(allocated.has_value());
  const ByteSpan bytes = allocated.value().bytes();
  std::memset(bytes.data(), 7, bytes.size());
  EXPECT_EQ(resident_bytes(bytes), bytes.size());
  const ByteSpan middle = bytes.subspan(10 * kPage, 20 * kPage);
  const std::size_t dropped = drop_pages(middle);
  EXPECT_GE(dropped, 19 * kPage);  // the buffer need not start on a page
  EXPECT_LE(dropped, 20 * kPage);
  EXPECT_EQ(resident_bytes(bytes), bytes.size() - dropped);
  const auto zeros = std::ranges::count(middle, std::byte{0});
  EXPECT_EQ(static_cast<std::size_t>(zeros), dropped);
  const auto sevens = std::ranges::count(bytes, std::byte{7});
  EXPECT_EQ(static_cast<std::size_t>(sevens), bytes.size() - dropped);
}

TEST(Pages, LessThanAPageStays) {
  const auto allocated = Buffer::allocate(2 * kPage);
  ASSERT_TRUE(allocated.has_value());
  const ByteSpan bytes = allocated.value().bytes();
  std::memset(bytes.data(), 7, bytes.size());
  EXPECT_EQ(drop_pages(bytes.first(kPage - 1)), 0U);
  EXPECT_EQ(drop_pages({}), 0U);
  EXPECT_EQ(std::ranges::count(bytes, std::byte{7}), static_cast<std::ptrdiff_t>(2 * kPage));
  EXPECT_EQ(resident_bytes({}), 0U);
}

}  // namespace
}  // namespace gradwire::pages_test
