// A coder on a device writes the host's payloads, keeps the host's residuals, reads what the host
// wrote, and refuses what the host refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "gradwire/registry.h"
#include "tests/gpu/on_device.h"

namespace gradwire {
namespace {

using gpu::kFirst;
using gpu::kStream;
using gpu::OnDevice;

constexpr Compressor::Placement kOnHost{.rank = 1, .size = 3, .seed = 11, .tensor = 77};
Compressor::Placement on_device() {
  Compressor::Placement where = kOnHost;
  where.device = kFirst;
  return where;
}
constexpr Slice kSlice{.step = 5, .tensor = 77, .rank = 1, .stage = 0, .first = 0};

// Both formats of one spec.
struct Pair {
  std::unique_ptr<WireFormat> host;
  std::unique_ptr<WireFormat> device;
};
Pair open_pair(const std::string& spec) {
  auto made = Registry::builtin().make(spec);
  EXPECT_TRUE(made.has_value()) << spec << ": " << made.error().message();
  auto host = made.value()->open_slices(Shape::vector(1), kOnHost);
  auto device = made.value()->open_slices(Shape::vector(1), on_device());
  EXPECT_TRUE(host.has_value()) << host.error().message();
  EXPECT_TRUE(device.has_value()) << device.error().message();
  return {std::move(host).value(), std::move(device).value()};
}

// Magnitudes over many binades, zeros of both signs, runs of zeros that fill whole buckets.
std::vector<float> gradient(std::size_t count, std::uint64_t seed) {
  const RandomStream draws(seed, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float u = draws.uniform(i) - 0.5f;
    x[i] = u * std::ldexp(1.0f, static_cast<int>(draws.word(count + i) % 40) - 30);
    if (i % 17 == 3) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
    if (i >= 1024 && i < 1600) x[i] = 0;
  }
  return x;
}

// Sizes around every unit that a kernel works in: one element, a byte of bits, a lane's part, a
// bucket, several blocks; and an end that fills nothing.
constexpr std::size_t kCounts[] = {1, 7, 16, 33, 512, 513, 5000, 12345};

const char* const kSpecs[] = {"qsgd:bits=8",
                              "qsgd:bits=4",
                              "qsgd:bits=2",
                              "qsgd:bits=3,bucket=96",
                              "qsgd:levels=5,bucket=13",
                              "qsgd:bits=4,bucket=2048",
                              "qsgd:bits=5,norm=l2,bucket=100"};

void expect_packed_alike(Pair& pair, const std::vector<float>& grad, const Slice& slice,
                         std::size_t skip) {
  const auto elems = static_cast<std::int64_t>(grad.size());
  std::vector<std::byte> wire(pair.host->bytes(elems, 0));
  ASSERT_EQ(pair.device->bytes(elems, 0), wire.size());
  const auto written = pair.host->pack(const_view_of<float>(grad), slice, wire, {});
  ASSERT_TRUE(written.has_value()) << written.error().message();
  const OnDevice there = gpu::uploaded(grad, skip);
  const OnDevice wire_there(wire.size(), skip == 0 ? 0 : 1);
  const auto packed = pair.device->pack(there.tensor<float>(), slice, wire_there.bytes(), kStream);
  ASSERT_TRUE(packed.has_value()) << packed.error().message();
  EXPECT_EQ(packed.value(), wire.size());
  EXPECT_EQ(wire_there.read(), wire);
}

TEST(DevicePayloads, AreTheHostsBytes) {
  for (const std::string spec : kSpecs) {
    Pair pair = open_pair(spec);
    for (const std::size_t count : kCounts) {
      SCOPED_TRACE(spec + " of " + std::to_string(count));
      const std::vector<float> grad = gradient(count, count);
      expect_packed_alike(pair, grad, kSlice, 0);
      Slice later = kSlice;
      later.first = 1003;  // draws begin in the middle of a block
      expect_packed_alike(pair, grad, later, sizeof(float));
    }
  }
}

TEST(DevicePayloads, LeaveTheHostsResiduals) {
  for (const std::string spec : kSpecs) {
    Pair pair = open_pair(spec);
    ASSERT_TRUE(pair.device->takes_feedback()) << spec;
    for (const std::size_t count : kCounts) {
      for (const double scale : {1.0, 0.375}) {
        SCOPED_TRACE(spec + " of " + std::to_string(count));
        const std::vector<float> grad = gradient(count, count);
        const std::vector<float> residual = gradient(count, count + 1);
        std::vector<float> next(count);
        std::vector<std::byte> wire(pair.host->bytes(static_cast<std::int64_t>(count), 0));
        const Feedback here{const_view_of<float>(residual), view_of<float>(next), scale};
        ASSERT_TRUE(
            pair.host->pack_with_feedback(const_view_of<float>(grad), here, kSlice, wire, {})
                .has_value());
        const OnDevice grad_there = gpu::uploaded(grad);
        const OnDevice residual_there = gpu::uploaded(residual);
        const OnDevice next_there(count * sizeof(float));
        const OnDevice wire_there(wire.size());
        const Feedback there{residual_there.tensor<float>(), next_there.tensor<float>(), scale};
        const auto packed = pair.device->pack_with_feedback(grad_there.tensor<float>(), there,
                                                            kSlice, wire_there.bytes(), kStream);
        ASSERT_TRUE(packed.has_value()) << packed.error().message();
        EXPECT_EQ(wire_there.read(), wire);
        EXPECT_EQ(next_there.read(), gpu::uploaded(next).read());
      }
    }
  }
}

TEST(DevicePayloads, AreReadAndAddedAsTheHostDoes) {
  for (const std::string spec : kSpecs) {
    Pair pair = open_pair(spec);
    for (const std::size_t count : kCounts) {
      SCOPED_TRACE(spec + " of " + std::to_string(count));
      std::vector<float> values = gradient(count, count);
      std::vector<std::byte> wire(pair.host->bytes(static_cast<std::int64_t>(count), 0));
      ASSERT_TRUE(pair.host->pack(const_view_of<float>(values), kSlice, wire, {}).has_value());
      for (const std::size_t skip : {std::size_t{0}, sizeof(float)}) {
        const OnDevice wire_there(wire, skip == 0 ? 0 : 3);
        const OnDevice values_there = gpu::uploaded(values, skip);
        ASSERT_TRUE(pair.host->unpack_add(wire, kSlice, view_of<float>(values), {}).ok());
        const Status added = pair.device->unpack_add(wire_there.bytes(), kSlice,
                                                     values_there.tensor<float>(), kStream);
        ASSERT_TRUE(added.ok()) << added.message();
        EXPECT_EQ(values_there.read(), gpu::uploaded(values).read());
        ASSERT_TRUE(pair.host->unpack(wire, kSlice, view_of<float>(values), {}).ok());
        const Status put =
            pair.device->unpack(wire_there.bytes(), kSlice, values_there.tensor<float>(), kStream);
        ASSERT_TRUE(put.ok()) << put.message();
        EXPECT_EQ(values_there.read(), gpu::uploaded(values).read());
      }
    }
  }
}

TEST(DevicePayloads, OfNaNAreTheHostsAndWithFeedbackAreRefused) {
  for (const std::string spec : kSpecs) {
    Pair pair = open_pair(spec);
    std::vector<float> grad = gradient(3000, 1);
    grad[700] = std::numeric_limits<float>::quiet_NaN();
    grad[2500] = -std::numeric_limits<float>::infinity();
    SCOPED_TRACE(spec);
    expect_packed_alike(pair, grad, kSlice, 0);
    const OnDevice grad_there = gpu::uploaded(grad);
    const OnDevice residual_there(3000 * sizeof(float));
    const OnDevice next_there(3000 * sizeof(float));
    const OnDevice wire_there(pair.device->bytes(3000, 0));
    const Feedback there{residual_there.tensor<float>(), next_there.tensor<float>(), 1};
    const auto packed = pair.device->pack_with_feedback(grad_there.tensor<float>(), there, kSlice,
                                                        wire_there.bytes(), kStream);
    ASSERT_FALSE(packed.has_value());
    EXPECT_EQ(packed.error().code(), Code::kInvalidArgument);
  }
}

// Every byte of a payload changed in turn: what the host refuses the device does, with the same
// code, and what it takes gives the same values.
TEST(DevicePayloads, ThatAreHostileAreJudgedAsOnTheHost) {
  for (const std::string spec : kSpecs) {
    Pair pair = open_pair(spec);
    const std::vector<float> grad = gradient(45, 9);
    std::vector<std::byte> wire(pair.host->bytes(45, 0));
    ASSERT_TRUE(pair.host->pack(const_view_of<float>(grad), kSlice, wire, {}).has_value());
    int refused = 0;
    for (std::size_t at = 0; at < wire.size(); ++at) {
      for (const std::byte flip : {std::byte{0xff}, std::byte{0x80}, std::byte{0x11}}) {
        std::vector<std::byte> hostile = wire;
        hostile[at] ^= flip;
        std::vector<float> values(45);
        const Status here = pair.host->unpack(hostile, kSlice, view_of<float>(values), {});
        const OnDevice hostile_there(hostile);
        const OnDevice values_there(45 * sizeof(float));
        const Status there = pair.device->unpack(hostile_there.bytes(), kSlice,
                                                 values_there.tensor<float>(), kStream);
        EXPECT_EQ(there.code(), here.code()) << spec << ", byte " << at << ": " << there.message();
        refused += here.ok() ? 0 : 1;
        if (!here.ok()) continue;
        EXPECT_EQ(values_there.read(), gpu::uploaded(values).read());
      }
    }
    EXPECT_GT(refused, 0) << spec;
    EXPECT_EQ(pair.device
                  ->unpack(ConstByteSpan(wire).first(wire.size() - 1), kSlice,
                           OnDevice(45 * sizeof(float)).tensor<float>(), kStream)
                  .code(),
              Code::kCorruptPayload);
  }
}

TEST(DevicePayloads, TensorsOfOtherPlacesAndTypesAreRefused) {
  const auto made = Registry::builtin().make("qsgd:bits=8");
  Compressor::Placement wide = on_device();
  wide.dtype = DType::kF64;
  EXPECT_EQ(made.value()->open_slices(Shape::vector(1), wide).error().code(), Code::kUnsupported);
  Pair pair = open_pair("qsgd:bits=8");
  const std::vector<float> here(16);
  const OnDevice wire_there(pair.device->bytes(16, 0));
  const auto packed =
      pair.device->pack(const_view_of<float>(here), kSlice, wire_there.bytes(), kStream);
  EXPECT_EQ(packed.error().code(), Code::kInvalidArgument);
}

// A whole step: three ranks' coders, their payloads gathered on the device.
TEST(DevicePayloads, CodersOnADeviceAverageAsOnTheHost) {
  const auto made = Registry::builtin().make("qsgd:bits=4");
  const Shape shape = Shape::vector(1000);
  const std::vector<float> grad = gradient(1000, 4);
  const auto average = [&](Compressor::Placement where, ConstTensorView g, ByteSpan room,
                           TensorView mean) {
    std::vector<ConstByteSpan> gathered;
    const std::size_t each = room.size() / 3;
    std::unique_ptr<Coder> coder;
    for (int rank = 0; rank < 3; ++rank) {
      where.rank = rank;
      coder = std::move(made.value()->open(shape, where)).value();
      EXPECT_TRUE(coder->begin(g, 2, kStream).ok());
      const ByteSpan payload = room.subspan(static_cast<std::size_t>(rank) * each, each);
      EXPECT_TRUE(coder->encode(0, payload, kStream).has_value());
      gathered.push_back(payload);
    }
    EXPECT_TRUE(coder->absorb(0, gathered, kStream).ok());
    const Status finished = coder->finish(mean, {}, kStream);
    EXPECT_TRUE(finished.ok()) << finished.message();
  };
  const std::size_t each = made.value()->max_payload_bytes(shape, DType::kF32, 0, 3);
  std::vector<std::byte> room(3 * each);
  std::vector<float> mean(1000);
  average(kOnHost, const_view_of<float>(grad), room, view_of<float>(mean));
  const OnDevice grad_there = gpu::uploaded(grad);
  const OnDevice room_there(room.size());
  const OnDevice mean_there(1000 * sizeof(float));
  average(on_device(), grad_there.tensor<float>(), room_there.bytes(), mean_there.tensor<float>());
  EXPECT_EQ(room_there.read(), room);
  EXPECT_EQ(mean_there.read(), gpu::uploaded(mean).read());
}

}  // namespace
}  // namespace gradwire
