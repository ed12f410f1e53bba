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

// What is written before the system takes the pages stays; what is not is as it was, or zeros.
TEST(Pages, OfferedMemoryIsWrittenAgainAsIfNothingHadBeen) {
  const auto allocated = Buffer::allocate(64 * kPage);
  ASSERT_TRUE(allocated.has_value());
  const ByteSpan bytes = allocated.value().bytes();
  std::memset(bytes.data(), 7, bytes.size());
  const ByteSpan middle = bytes.subspan(10 * kPage, 20 * kPage);
  const std::size_t offered = offer_pages(middle);
  EXPECT_GE(offered, 19 * kPage);
  EXPECT_LE(offered, 20 * kPage);
  const auto kept = std::ranges::count(bytes, std::byte{7});
  const auto taken = std::ranges::count(bytes, std::byte{0});
  EXPECT_EQ(kept + taken, static_cast<std::ptrdiff_t>(bytes.size()));
  EXPECT_LE(static_cast<std::size_t>(taken), offered);
  std::memset(middle.data(), 9, middle.size());
  EXPECT_EQ(std::ranges::count(middle, std::byte{9}), static_cast<std::ptrdiff_t>(middle.size()));
  EXPECT_EQ(offer_pages(bytes.first(kPage - 1)), 0U);
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
