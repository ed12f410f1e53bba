// On the device that the host plays: what is counted and said, not how long it takes.
#include "bench/device_bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

#include "bench/device_smoke.h"
#include "tests/emulation/emulated_device.h"

namespace gradwire::bench {
namespace {

DeviceBench opened(std::int64_t elements) {
  auto bench = DeviceBench::create({.elements = elements, .rounds = 3, .warm_up_seconds = 0});
  EXPECT_TRUE(bench.has_value()) << bench.error().message();
  return std::move(bench).value();
}

CodedTimes measured(DeviceBench& bench, const std::string& spec, bool feedback) {
  const auto times = bench.run(Registry::builtin(), spec, feedback);
  EXPECT_TRUE(times.has_value()) << spec << ": " << times.error().message();
  return times.has_value() ? times.value() : CodedTimes{};
}

void expect_timed(const StageTime& time, double moved, const std::string& what) {
  EXPECT_EQ(time.moved_bytes, moved) << what;
  EXPECT_GT(time.seconds, 0) << what;
  EXPECT_GT(time.host_seconds, 0) << what;
}

constexpr double kGradient = 32768;  // 8192 elements, 2 rows

TEST(DeviceBench, StagesMoveWhatTheyMustMove) {
  DeviceBench bench = opened(8192);
  const auto copy = bench.copy();
  ASSERT_TRUE(copy.has_value()) << copy.error().message();
  expect_timed(copy.value(), 65536, "copy");
  for (const bool feedback : {false, true}) {
    const CodedTimes half = measured(bench, "cast:fp16", feedback);
    expect_timed(half.encode, (feedback ? 3 : 1) * kGradient + 16384, "cast:fp16, encode");
    expect_timed(half.decode, kGradient + 16384, "cast:fp16, decode");
    EXPECT_EQ(half.encode.payload_bytes, 16384);
    EXPECT_EQ(half.copy.moved_bytes, 65536);
  }
  // A bit an element, and one for each block of 256.
  const CodedTimes votes = measured(bench, "signum", false);
  expect_timed(votes.encode, 3 * kGradient + 1028, "signum, encode");
  expect_timed(votes.decode, kGradient + 1028, "signum, decode");
  // 82 pairs of 8 bytes; what they leave is found when they are chosen.
  const CodedTimes pairs = measured(bench, "topk:ratio=0.01", true);
  EXPECT_EQ(pairs.encode.payload_bytes, 656);
  expect_timed(pairs.encode, 3 * kGradient + 656, "topk, encode");
}

TEST(DeviceBench, FactorsAreMeasuredInBothRounds) {
  DeviceBench bench = opened(65536);  // 16 x 4096: P of 64 bytes, Q of 16384
  for (const bool feedback : {false, true}) {
    const CodedTimes times = measured(bench, "powersgd:rank=1", feedback);
    EXPECT_EQ(times.encode.payload_bytes, 16448);
    expect_timed(times.encode, (feedback ? 4 : 2) * 262144.0 + 16448, "encode");
    expect_timed(times.decode, (feedback ? 3 : 1) * 262144.0 + 16448, "decode");
  }
}

// Nothing reaches 0.6 at first; later residuals do.
TEST(DeviceBench, BytesAreThoseOfTheRoundThatIsTold) {
  DeviceBench bench = opened(8192);
  const CodedTimes plain = measured(bench, "threshold:tau=0.6", false);
  EXPECT_EQ(plain.encode.moved_bytes, kGradient + plain.encode.payload_bytes);
  const CodedTimes times = measured(bench, "threshold:tau=0.6", true);
  EXPECT_GT(times.encode.payload_bytes, plain.encode.payload_bytes);
  EXPECT_EQ(times.encode.moved_bytes, 3 * kGradient + times.encode.payload_bytes);
  EXPECT_EQ(times.decode.moved_bytes, kGradient + times.decode.payload_bytes);
}

TEST(DeviceBench, TheMiddleRoundKeepsItsBytes) {
  const std::vector<StageTime> rounds = {{.seconds = 9, .moved_bytes = 90},
                                         {.seconds = 1, .moved_bytes = 8},
                                         {.seconds = 2, .moved_bytes = 40}};
  EXPECT_EQ(middle_of(rounds).seconds, 2);
  EXPECT_EQ(middle_of(rounds).moved_bytes, 40);
  EXPECT_EQ(middle_of(rounds).rate(), 20);
}

TEST(DeviceBench, PairsThatUsersAreRefusedAreRefusedHere) {
  DeviceBench bench = opened(8192);
  EXPECT_NE(measured(bench, "signum", true).refused.find("vote"), std::string::npos);
  EXPECT_NE(measured(bench, "dgc:ratio=0.1", true).refused.find("send it twice"),
            std::string::npos);
  EXPECT_NE(measured(bench, "signsgd:scale=none", true).refused.find("error bound"),
            std::string::npos);
  EXPECT_NE(measured(bench, "topk:ratio=0.1,index=gaps", false).refused.find("gaps"),
            std::string::npos);
  EXPECT_EQ(measured(bench, "signsgd:scale=none", false).refused, "");
}

TEST(DeviceBench, AFailureIsThatOfOneSpecAlone) {
  DeviceBench bench = opened(8192);
  const Registry registry = Registry::builtin();
  EXPECT_FALSE(bench.run(registry, "nonsense:1", false).has_value());
  emulation::refuse_allocations_after(0);
  const auto without_memory = bench.run(registry, "qsgd:bits=4", false);
  emulation::refuse_allocations_after(emulation::kEndless);
  EXPECT_EQ(without_memory.error().code(), Code::kOutOfMemory);
  emulation::refuse_copies_after(0);
  const auto without_copies = bench.run(registry, "none", false);
  emulation::refuse_copies_after(emulation::kEndless);
  EXPECT_FALSE(without_copies.has_value());
  EXPECT_EQ(measured(bench, "qsgd:bits=4", false).refused, "");
}

// With matrix products, and without.
TEST(DeviceBench, SmokeComparesWithTheHost) {
  const Registry registry = Registry::builtin();
  for (const char* spec : {"none", "qsgd:bits=4", "topk:ratio=0.01", "powersgd:rank=2"}) {
    for (const bool feedback : {false, true}) {
      const auto outcome = smoke(registry, spec, feedback, 8192);
      ASSERT_TRUE(outcome.has_value()) << spec << ": " << outcome.error().message();
      EXPECT_EQ(outcome.value().refused, "");
      EXPECT_EQ(fault_of(outcome.value(), spec), "");
      EXPECT_TRUE(outcome.value().same_bytes || std::string_view(spec).starts_with("powersgd"));
    }
  }
  EXPECT_NE(smoke(registry, "signum", true, 64).value().refused.find("vote"), std::string::npos);
  EXPECT_FALSE(smoke(registry, "nonsense:1", false, 64).has_value());
  EXPECT_NE(
      fault_of({.refused = "", .same_bytes = false, .difference = 0}, "topk").find("payloads"),
      std::string::npos);
  EXPECT_EQ(fault_of({.refused = "", .same_bytes = false, .difference = 1e-4}, "powersgd"), "");
  EXPECT_NE(
      fault_of({.refused = "", .same_bytes = false, .difference = NAN}, "acpsgd").find("mean"),
      std::string::npos);
}

TEST(DeviceBench, WithoutADeviceIsUnsupportedAndNothingIsNoBenchmark) {
  emulation::play_devices(0);
  EXPECT_EQ(DeviceBench::create({.elements = 64}).error().code(), Code::kUnsupported);
  emulation::play_devices(1);
  EXPECT_EQ(DeviceBench::create({.elements = 0}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(DeviceBench::create({.elements = 64, .rounds = 0}).error().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace gradwire::bench
