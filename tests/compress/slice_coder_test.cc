#include "gradwire/compressor.h"

#include <gtest/gtest.h>

#include "base/elements.h"
#include "gradwire/registry.h"
#include "tests/support/fails.h"

namespace gradwire::slice_coder_test {
namespace {

std::unique_ptr<Coder> bf16_gather(const Shape& shape, const Compressor::Placement& where) {
  auto made = Registry::builtin().make("cast:bf16");
  return make_slice_coder(std::move(made.value()->open_slices(shape, where)).value(), shape, where);
}

TEST(SliceCoder, AddsInRankOrderAndDividesOnce) {
  std::vector<float> grad{1.0f, 2.0f};
  const std::vector<std::vector<std::byte>> payloads{
      {std::byte{0x80}, std::byte{0x3f}, std::byte{0x00}, std::byte{0x40}},  // 1, 2
      {std::byte{0x40}, std::byte{0x40}, std::byte{0x00}, std::byte{0xc0}},  // 3, -2
  };
  const std::vector<ConstByteSpan> received(payloads.begin(), payloads.end());
  auto coder = bf16_gather(Shape::vector(2), {.rank = 1, .size = 2});
  std::vector<float> own(2);
  const TensorView mean = view_of(std::span<float>(grad));  // mean may be the gradient's memory
  ASSERT_TRUE(coder->begin(mean, 0, {}).ok());
  std::vector<std::byte> room(4);
  EXPECT_EQ(coder->encode(0, room, {}).value(), 4u);
  EXPECT_EQ(room, payloads[0]);
  ASSERT_TRUE(coder->absorb(0, received, {}).ok());
  ASSERT_TRUE(coder->finish(mean, view_of(std::span<float>(own)), {}).ok());
  EXPECT_EQ(grad, (std::vector<float>{2.0f, 0.0f}));
  EXPECT_EQ(own, (std::vector<float>{3.0f, -2.0f}));
}

TEST(SliceCoder, NamesTheRankOfABadPayload) {
  std::vector<float> grad{1.0f, 2.0f};
  std::vector<std::byte> good(4);
  std::vector<std::byte> bad(3);
  auto coder = bf16_gather(Shape::vector(2), {.rank = 0, .size = 2});
  ASSERT_TRUE(coder->begin(view_of(std::span<float>(grad)), 0, {}).ok());
  const std::vector<ConstByteSpan> received{good, bad};
  const Status status = coder->absorb(0, received, {});
  EXPECT_THAT(status, fails(Code::kCorruptPayload, "rank 1", "3 bytes", "4"));
  EXPECT_EQ(coder->absorb(0, std::span(received).first(1), {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(coder->finish(view_of(std::span<float>(grad)), {}, {}).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace gradwire::slice_coder_test
