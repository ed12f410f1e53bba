// A format on a device writes the host's payloads, keeps what separate passes of the host keep,
// reads what the host wrote, and refuses what the host refuses.
#include "tests/gpu/device_pair.h"

namespace gradwire::payloads_test {
namespace {

using gpu::bits_of;
using gpu::gradient;
using gpu::kCounts;
using gpu::kStream;
using gpu::on_device;
using gpu::OnDevice;
using gpu::open_pair;
using gpu::Pair;

Slice slice_of(int stage) {
  return {.step = 5, .tensor = 77, .rank = 1, .stage = stage, .first = 0};
}

// A method's specs: those that take a fast kernel, and those that do not. A new one is a line.
struct Case {
  const char* spec;
  bool any_bytes = false;  // every payload of the right length has a meaning
};
constexpr Case kCases[] = {
    {"qsgd:bits=8"},
    {"qsgd:bits=4"},
    {"qsgd:bits=2"},
    {"qsgd:bits=3,bucket=96"},
    {"qsgd:levels=5,bucket=13"},
    {"qsgd:bits=4,bucket=2048"},
    {"qsgd:bits=5,norm=l2,bucket=100"},
    {"cast:type=fp16", true},
    {"cast:type=bf16", true},
    {"fp8:type=e4m3"},
    {"fp8:type=e5m2,block=48"},
    {"fp8:type=e4m3,block=13"},
    {"fp8:type=e5m2,block=1000"},
    {"signsgd"},
    {"signsgd:bucket=40"},
    {"signsgd:bucket=13"},
    {"signsgd:bucket=5000"},
    {"signsgd:bucket=tensor"},
    {"signsgd:vote=majority"},
    {"onebit"},
    {"onebit:bucket=96"},
    {"onebit:bucket=13"},
    {"onebit:bucket=5000"},
    {"onebit:bucket=tensor"},
    {"terngrad:shared=false"},
    {"terngrad:clip=0,shared=false"},
    {"minmax:bits=8"},
    {"minmax:bits=4"},
    {"minmax:bits=3,bucket=1000"},
    {"minmax:bits=5,bucket=64,rounding=stochastic"},
    {"absmax:bits=8"},
    {"absmax:bits=4,bucket=96"},
    {"absmax:bits=1,bucket=24"},
    {"absmax:bits=4,rounding=stochastic"},
    {"minmax:bits=4,spikes=1"},
    {"minmax:bits=3,bucket=64,spikes=1,rounding=stochastic"},
    {"absmax:bits=1,bucket=24,spikes=1"},
    {"minmax:bits=8,bucket=8,spikes=1"},
    {"minmax:bits=4,transform=hadamard"},
    {"absmax:bits=2,bucket=8192,transform=hadamard"},
    {"absmax:bits=5,bucket=16,spikes=1,transform=hadamard"},
    {"mx:type=e4m3"},
    {"mx:type=e5m2"},
    {"mx:type=e3m2"},
    {"mx:type=e2m1"},
    {"natural"},
    {"natural:bits=8", true},
    {"none", true},
};

std::size_t bytes_of(const Pair& pair, std::size_t count, int stage) {
  const auto elems = static_cast<std::int64_t>(count);
  EXPECT_EQ(pair.device->bytes(elems, stage), pair.host->bytes(elems, stage));
  EXPECT_EQ(pair.device->seam(stage), pair.host->seam(stage));
  EXPECT_EQ(pair.device->sections(elems, stage), pair.host->sections(elems, stage));
  return pair.host->bytes(elems, stage);
}

// Or refused alike.
void expect_packed_alike(Pair& pair, const std::vector<float>& grad, const Slice& slice,
                         std::size_t skip) {
  std::vector<std::byte> wire(bytes_of(pair, grad.size(), slice.stage));
  const auto written = pair.host->pack(const_view_of<float>(grad), slice, wire, {});
  const OnDevice there = gpu::uploaded(grad, skip);
  const OnDevice wire_there(wire.size(), skip == 0 ? 0 : 1);
  const auto packed = pair.device->pack(there.tensor<float>(), slice, wire_there.bytes(), kStream);
  if (!written.has_value()) {
    ASSERT_FALSE(packed.has_value()) << written.error().message();
    EXPECT_EQ(packed.error().code(), written.error().code()) << packed.error().message();
    return;
  }
  ASSERT_TRUE(packed.has_value()) << packed.error().message();
  EXPECT_EQ(packed.value(), wire.size());
  EXPECT_EQ(wire_there.read(), wire);
}

TEST(DevicePayloads, AreTheHostsBytes) {
  for (const Case& each : kCases) {
    Pair pair = open_pair(each.spec);
    for (const std::size_t count : kCounts) {
      SCOPED_TRACE(std::string(each.spec) + " of " + std::to_string(count));
      const std::vector<float> grad = gradient(count, count);
      expect_packed_alike(pair, grad, slice_of(0), 0);
      expect_packed_alike(pair, grad, slice_of(1), 0);
      Slice later = slice_of(0);
      later.first = 1003;  // draws begin in the middle of a block
      expect_packed_alike(pair, grad, later, sizeof(float));
    }
  }
}

// Sums whose rounding to fp32 hangs on their last bit: no sum in another order tells it.
TEST(DevicePayloads, OfMeansBetweenTwoFloatsAreTheHostsBytes) {
  for (const char* const spec : {"signsgd:bucket=tensor", "signsgd:bucket=5000",
                                 "onebit:bucket=tensor", "onebit:bucket=6000"}) {
    SCOPED_TRACE(spec);
    Pair pair = open_pair(spec);
    std::vector<float> grad(20000);
    for (std::size_t i = 0; i < grad.size(); ++i) {
      const float magnitude = i % 4 < 2 ? 1.0f : 1.0f + 0x1p-23f;
      grad[i] = i % 2 == 0 ? magnitude : -magnitude;
    }
    for (const std::size_t skip : {std::size_t{0}, sizeof(float)}) {
      expect_packed_alike(pair, grad, slice_of(0), skip);
    }
  }
}

TEST(DevicePayloads, OfNothingAreNothing) {
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.spec);
    Pair pair = open_pair(each.spec);
    EXPECT_EQ(bytes_of(pair, 0, 0), 0);
    const OnDevice none(0);
    const auto packed = pair.device->pack(none.tensor<float>(), slice_of(0), {}, kStream);
    ASSERT_TRUE(packed.has_value()) << packed.error().message();
    EXPECT_EQ(packed.value(), 0);
    EXPECT_TRUE(pair.device->unpack({}, slice_of(0), none.tensor<float>(), kStream).ok());
  }
}

// What packing, unpacking and subtracting one after the other leave on the host.
struct Kept {
  std::vector<std::byte> wire;
  std::vector<float> next;
};
Kept kept_by_passes(Pair& pair, const std::vector<float>& grad, const std::vector<float>& residual,
                    float scale, const Slice& slice) {
  std::vector<float> sum(grad.size());
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = grad[i] + residual[i];
  Kept kept{std::vector<std::byte>(bytes_of(pair, grad.size(), slice.stage)), sum};
  EXPECT_TRUE(pair.host->pack(const_view_of<float>(sum), slice, kept.wire, {}).has_value());
  std::vector<float> own(sum.size());
  EXPECT_TRUE(pair.host->unpack(kept.wire, slice, view_of<float>(own), {}).ok());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const float part = own[i] * scale;
    kept.next[i] = sum[i] - part;
  }
  return kept;
}

void expect_kept_alike(Pair& pair, std::size_t count, float scale, const Slice& slice,
                       std::size_t skip) {
  const std::vector<float> grad = gradient(count, count);
  const std::vector<float> residual = gradient(count, count + 1);
  const Kept here = kept_by_passes(pair, grad, residual, scale, slice);
  const OnDevice grad_there = gpu::uploaded(grad, skip);
  const OnDevice residual_there = gpu::uploaded(residual, skip);
  const OnDevice next_there(count * sizeof(float), skip);
  const OnDevice wire_there(here.wire.size(), skip == 0 ? 0 : 1);
  const Feedback there{residual_there.tensor<float>(), next_there.tensor<float>(),
                       static_cast<double>(scale)};
  const auto packed = pair.device->pack_with_feedback(grad_there.tensor<float>(), there, slice,
                                                      wire_there.bytes(), kStream);
  ASSERT_TRUE(packed.has_value()) << packed.error().message();
  EXPECT_EQ(wire_there.read(), here.wire);
  EXPECT_EQ(next_there.read(), gpu::uploaded(here.next).read());
}

TEST(DevicePayloads, LeaveWhatSeparatePassesLeave) {
  for (const Case& each : kCases) {
    Pair pair = open_pair(each.spec);
    if (!pair.device->takes_feedback()) continue;
    for (const std::size_t count : kCounts) {
      SCOPED_TRACE(std::string(each.spec) + " of " + std::to_string(count));
      expect_kept_alike(pair, count, 1.0f, slice_of(0), 0);
      expect_kept_alike(pair, count, 0.375f, slice_of(1), 0);
      expect_kept_alike(pair, count, 1.0f, slice_of(0), sizeof(float));
    }
  }
}

TEST(DevicePayloads, AreReadAndAddedAsTheHostDoes) {
  for (const Case& each : kCases) {
    Pair pair = open_pair(each.spec);
    for (const std::size_t count : kCounts) {
      SCOPED_TRACE(std::string(each.spec) + " of " + std::to_string(count));
      std::vector<float> values = gradient(count, count);
      for (const int stage : {0, 1}) {
        std::vector<std::byte> wire(bytes_of(pair, count, stage));
        const Slice slice = slice_of(stage);
        ASSERT_TRUE(pair.host->pack(const_view_of<float>(values), slice, wire, {}).has_value());
        for (const std::size_t skip : {std::size_t{0}, sizeof(float)}) {
          const OnDevice wire_there(wire, skip == 0 ? 0 : 3);
          const OnDevice values_there = gpu::uploaded(values, skip);
          ASSERT_TRUE(pair.host->unpack_add(wire, slice, view_of<float>(values), {}).ok());
          const Status added = pair.device->unpack_add(wire_there.bytes(), slice,
                                                       values_there.tensor<float>(), kStream);
          ASSERT_TRUE(added.ok()) << added.message();
          EXPECT_EQ(bits_of(values_there), bits_of(values));
          ASSERT_TRUE(pair.host->unpack(wire, slice, view_of<float>(values), {}).ok());
          const Status put =
              pair.device->unpack(wire_there.bytes(), slice, values_there.tensor<float>(), kStream);
          ASSERT_TRUE(put.ok()) << put.message();
          EXPECT_EQ(bits_of(values_there), bits_of(values));
        }
      }
    }
  }
}

TEST(DevicePayloads, OfNaNAreTheHostsAndWithFeedbackAreRefused) {
  for (const Case& each : kCases) {
    Pair pair = open_pair(each.spec);
    SCOPED_TRACE(each.spec);
    for (const bool nan : {true, false}) {
      std::vector<float> grad = gradient(3000, 1);
      if (nan) grad[700] = std::bit_cast<float>(0xffc12345u);  // its bits may travel
      grad[2500] = -std::numeric_limits<float>::infinity();
      for (const int stage : {0, 1}) expect_packed_alike(pair, grad, slice_of(stage), 0);
      const OnDevice grad_there = gpu::uploaded(grad);
      const OnDevice residual_there(3000 * sizeof(float));
      const OnDevice next_there(3000 * sizeof(float));
      const OnDevice wire_there(bytes_of(pair, 3000, 0));
      const Feedback there{residual_there.tensor<float>(), next_there.tensor<float>(), 1};
      if (!pair.device->takes_feedback()) continue;
      const auto packed = pair.device->pack_with_feedback(grad_there.tensor<float>(), there,
                                                          slice_of(0), wire_there.bytes(), kStream);
      ASSERT_FALSE(packed.has_value());
      EXPECT_EQ(packed.error().code(), Code::kInvalidArgument);
    }
  }
}

// Every byte of a payload changed in turn: what the host refuses the device does, with the same
// code, and what it takes gives the same values.
TEST(DevicePayloads, ThatAreHostileAreJudgedAsOnTheHost) {
  for (const Case& each : kCases) {
    Pair pair = open_pair(each.spec);
    const std::vector<float> grad = gradient(45, 9);
    int refused = 0;
    for (const int stage : {0, 1}) {
      const Slice slice = slice_of(stage);
      std::vector<std::byte> wire(bytes_of(pair, 45, stage));
      ASSERT_TRUE(pair.host->pack(const_view_of<float>(grad), slice, wire, {}).has_value());
      for (std::size_t at = 0; at < wire.size(); ++at) {
        for (const std::byte flip : {std::byte{0xff}, std::byte{0x80}, std::byte{0x11}}) {
          std::vector<std::byte> hostile = wire;
          hostile[at] ^= flip;
          std::vector<float> values(45);
          const Status here = pair.host->unpack(hostile, slice, view_of<float>(values), {});
          const OnDevice hostile_there(hostile);
          const OnDevice values_there(45 * sizeof(float));
          const Status there = pair.device->unpack(hostile_there.bytes(), slice,
                                                   values_there.tensor<float>(), kStream);
          EXPECT_EQ(there.code(), here.code())
              << each.spec << ", byte " << at << ": " << there.message();
          refused += here.ok() ? 0 : 1;
          if (!here.ok()) continue;
          EXPECT_EQ(bits_of(values_there), bits_of(values));
        }
      }
      EXPECT_EQ(pair.device
                    ->unpack(ConstByteSpan(wire).first(wire.size() - 1), slice,
                             OnDevice(45 * sizeof(float)).tensor<float>(), kStream)
                    .code(),
                Code::kCorruptPayload);
    }
    EXPECT_EQ(refused > 0, !each.any_bytes) << each.spec;
  }
}

TEST(DevicePayloads, TensorsOfOtherPlacesAndTypesAreRefused) {
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.spec);
    const auto made = Registry::builtin().make(each.spec);
    Compressor::Placement wide = on_device();
    wide.dtype = DType::kF64;
    EXPECT_EQ(made.value()->open_slices(Shape::vector(1), wide).error().code(), Code::kUnsupported);
    Pair pair = open_pair(each.spec);
    const std::vector<float> here(16);
    const OnDevice wire_there(bytes_of(pair, 16, 0));
    const auto packed =
        pair.device->pack(const_view_of<float>(here), slice_of(0), wire_there.bytes(), kStream);
    EXPECT_EQ(packed.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace gradwire::payloads_test
