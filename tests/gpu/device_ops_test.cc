// device/ops.h on a device gives the host's bits.
#include "device/ops.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "device/cuda/ordered.h"
#include "tests/gpu/on_device.h"
#include "tests/support/fails.h"

namespace gradwire::device_ops_test {
namespace {

using gpu::kFirst;
using gpu::kStream;
using gpu::OnDevice;

constexpr DType kAllTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
                               DType::kI64, DType::kI32, DType::kI8,  DType::kU8};
constexpr DType kFloating[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
// None, one, what a thread moves at a time and a little more, several blocks.
constexpr std::int64_t kCounts[] = {0, 1, 5, 16, 255, 4099};

TensorView host_tensor(std::vector<std::byte>& bytes, DType dtype) {
  return {bytes.data(), Shape::vector(static_cast<std::int64_t>(bytes.size() / size_of(dtype))),
          dtype};
}

// Numbers of the type with every kind of magnitude, no NaN among them: which of two is kept is the
// processor's choice.
std::vector<std::byte> numbers(DType dtype, std::int64_t count, std::uint64_t seed) {
  const RandomStream draws(seed, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<double> wide(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const double x = static_cast<double>(draws.uniform(i)) - 0.5;
    wide[i] = i % 11 == 3 ? 0.0 : i % 13 == 5 ? -0.0 : x * (i % 7 == 0 ? 0x1p-20 : 0x1p5);
    if (i % 97 == 50) wide[i] = std::numeric_limits<double>::infinity();
  }
  std::vector<std::byte> out(wide.size() * size_of(dtype));
  if (is_floating(dtype)) {
    EXPECT_TRUE(cast(const_view_of<double>(wide), host_tensor(out, dtype), {}).ok());
    return out;
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(draws.word(i));
  return out;
}

TEST(DeviceOps, ReductionsGiveTheHostsBits) {
  for (const DType dtype : kAllTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct}) {
      for (const std::int64_t count : kCounts) {
        // Infinity less infinity, or times 0, is a NaN of either processor's own bits.
        if (is_floating(dtype) && count > 50 && op == ReduceOp::kProduct) continue;
        for (const std::size_t skip : {std::size_t{0}, size_of(dtype)}) {
          std::vector<std::byte> acc = numbers(dtype, count, 1);
          std::vector<std::byte> src = numbers(dtype, count, 2);
          const OnDevice acc_there(acc, skip);
          const OnDevice src_there(src, skip);
          ASSERT_TRUE(reduce(op, host_tensor(src, dtype), host_tensor(acc, dtype), {}).ok());
          const TensorView there{acc_there.bytes().data(), Shape::vector(count), dtype, kFirst};
          const TensorView from{src_there.bytes().data(), Shape::vector(count), dtype, kFirst};
          const Status done = reduce(op, from, there, kStream);
          ASSERT_TRUE(done.ok()) << done.message();
          EXPECT_EQ(acc_there.read(), acc)
              << to_string(op) << " of " << count << " " << to_string(dtype);
        }
      }
    }
  }
}

TEST(DeviceOps, ScalesCastsAndNeutralElementsGiveTheHostsBits) {
  for (const DType dtype : kFloating) {
    for (const std::int64_t count : kCounts) {
      std::vector<std::byte> src = numbers(dtype, count, 3);
      const OnDevice there(src);
      const TensorView from{there.bytes().data(), Shape::vector(count), dtype, kFirst};
      for (const DType to : kFloating) {
        std::vector<std::byte> dst(static_cast<std::size_t>(count) * size_of(to));
        const OnDevice dst_there(dst.size(), size_of(to));
        const TensorView into{dst_there.bytes().data(), Shape::vector(count), to, kFirst};
        ASSERT_TRUE(cast(host_tensor(src, dtype), host_tensor(dst, to), {}).ok());
        ASSERT_TRUE(cast(from, into, kStream).ok());
        EXPECT_EQ(dst_there.read(), dst) << to_string(dtype) << " to " << to_string(to);
      }
      ASSERT_TRUE(scale(host_tensor(src, dtype), 1.0 / 3, {}).ok());
      ASSERT_TRUE(scale(from, 1.0 / 3, kStream).ok());
      EXPECT_EQ(there.read(), src) << to_string(dtype);
    }
  }
  for (const DType dtype : kAllTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct}) {
      std::vector<std::byte> here(37 * size_of(dtype));
      const OnDevice there(here.size());
      ASSERT_TRUE(fill_neutral(op, host_tensor(here, dtype), {}).ok());
      const TensorView into{there.bytes().data(), Shape::vector(37), dtype, kFirst};
      ASSERT_TRUE(fill_neutral(op, into, kStream).ok());
      EXPECT_EQ(there.read(), here) << to_string(dtype) << " " << to_string(op);
    }
  }
}

TEST(DeviceOps, SaturatingCastsGiveTheHostsBits) {
  for (const std::int64_t count : kCounts) {
    std::vector<std::byte> src = numbers(DType::kF32, count, 5);
    const OnDevice there(src);
    const TensorView from{there.bytes().data(), Shape::vector(count), DType::kF32, kFirst};
    for (const DType to : {DType::kF16, DType::kBF16}) {
      std::vector<std::byte> dst(static_cast<std::size_t>(count) * size_of(to));
      const OnDevice dst_there(dst.size(), size_of(to));
      const TensorView into{dst_there.bytes().data(), Shape::vector(count), to, kFirst};
      for (const double factor : {1.0, 1e6}) {  // which saturates
        ASSERT_TRUE(
            saturating_cast(host_tensor(src, DType::kF32), factor, host_tensor(dst, to), {}).ok());
        ASSERT_TRUE(saturating_cast(from, factor, into, kStream).ok());
        EXPECT_EQ(dst_there.read(), dst) << to_string(to) << " by " << factor;
      }
    }
  }
}

// Of the type, whatever it may hold: each infinity and zero, NaNs of every kind, any bits.
std::vector<std::byte> patterns(DType dtype, std::int64_t count, std::uint64_t seed) {
  const RandomStream draws(seed, RandomUse::kTest, 1, 0, 0, 0);
  std::vector<std::byte> out = numbers(dtype, count, seed);
  const std::size_t width = size_of(dtype);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::byte* const at = out.data() + i * width;
    for (std::size_t b = 0; b < width && i % 3 == 0; ++b) {
      at[b] = static_cast<std::byte>(draws.word(i * width + b));
    }
    // Exponents of ones: infinities and NaNs.
    if (i % 12 == 0) at[width - 1] |= std::byte{0x7f};
    if (i % 12 == 0) at[width - 2] |= std::byte{0xf0};
  }
  return out;
}

TEST(DeviceOps, OrderedIntegersHaveTheExtremesThatNumbersHave) {
  for (const DType dtype : kFloating) {
    const DType ordered = cuda::ordered_type(dtype);
    for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{5}, std::int64_t{70001}}) {
        for (const std::size_t skip : {std::size_t{0}, size_of(dtype)}) {
          std::vector<std::byte> acc = patterns(dtype, count, 1);
          std::vector<std::byte> src = patterns(dtype, count, 2);
          const OnDevice result(acc, skip);
          const OnDevice other(src, skip);
          const OnDevice integers[] = {
              OnDevice(static_cast<std::size_t>(count) * size_of(ordered)),
              OnDevice(static_cast<std::size_t>(count) * size_of(ordered))};
          const auto view = [count](const OnDevice& memory, DType type) {
            return TensorView{memory.bytes().data(), Shape::vector(count), type, kFirst};
          };
          const TensorView a = view(integers[0], ordered);
          const TensorView b = view(integers[1], ordered);
          ASSERT_TRUE(cuda::to_ordered(op, view(result, dtype), a, kStream).ok());
          ASSERT_TRUE(cuda::to_ordered(op, view(other, dtype), b, kStream).ok());
          ASSERT_TRUE(reduce(op, b, a, kStream).ok());
          ASSERT_TRUE(cuda::from_ordered(a, view(result, dtype), kStream).ok());
          ASSERT_TRUE(reduce(op, host_tensor(src, dtype), host_tensor(acc, dtype), {}).ok());
          EXPECT_TRUE(result.read() == acc)
              << to_string(op) << " of " << count << " " << to_string(dtype);
        }
      }
    }
  }
}

TEST(DeviceOps, CopiesBetweenAllPlaces) {
  std::vector<std::int32_t> values{1, -2, 3};
  const OnDevice a = gpu::uploaded(values);
  const OnDevice b(a.bytes().size());
  ASSERT_TRUE(copy_bytes(a.bytes(), kFirst, b.bytes(), kFirst, kStream).ok());
  EXPECT_EQ(b.values<std::int32_t>(), values);
  const auto pinned = Buffer::allocate(12, {MemorySpace::kPinnedHost, 0});
  ASSERT_TRUE(pinned.has_value()) << pinned.error().message();
  ASSERT_TRUE(
      copy_bytes(b.bytes(), kFirst, pinned.value().bytes(), pinned.value().device(), kStream).ok());
  ASSERT_TRUE(cuda::synchronize(kStream).ok());
  EXPECT_EQ(std::to_integer<int>(pinned.value().bytes()[8]), 3);
}

TEST(DeviceOps, MemoryIsZeroedAndPlacesThatDoNotMatchAreRefused) {
  const auto memory = Buffer::allocate(100, kFirst);
  ASSERT_TRUE(memory.has_value()) << memory.error().message();
  std::vector<std::byte> out(100, std::byte{1});
  ASSERT_TRUE(copy_bytes(memory.value().bytes(), kFirst, out, Device{}, kStream).ok());
  ASSERT_TRUE(cuda::synchronize(kStream).ok());
  EXPECT_EQ(out, std::vector<std::byte>(100));

  std::vector<float> here{1, 2};
  const OnDevice there = gpu::uploaded(here);
  EXPECT_EQ(reduce(ReduceOp::kSum, view_of<float>(here), there.tensor<float>(), kStream).code(),
            Code::kInvalidArgument);
  const auto nowhere = Buffer::allocate(1, {MemorySpace::kCuda, 4096});
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_THAT(nowhere.error(),
              fails(Code::kInvalidArgument, "cudaErrorInvalidDevice", "cudaSetDevice"));
}

}  // namespace
}  // namespace gradwire::device_ops_test
