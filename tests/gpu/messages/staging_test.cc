// Operations on a device's tensors over messages: that they begin when the device has come there,
// and what passes through the host. On any device; what needs one that is held is in
// staging_held_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/messages/staging_place.h"

namespace gradwire::staging_test {
namespace {

using staging::kDevice;
using staging::on_ranks;
using staging::Place;
using staging::ramp;
using staging::ramps_of_two;
using staging::text;
using ::testing::Each;

// What the stream is given before takes longer than the call, and what is written last is summed.
TEST(Staging, BeginsWhenTheStreamHasRunWhatItWasGivenBefore) {
  constexpr std::int64_t kElems = 8 << 20;
  constexpr int kBefore = 20;
  const auto faults = on_ranks(2, [](Communicator& world) -> std::string {
    const Place place = Place::make(kElems);
    constexpr std::size_t kBytes = kElems * sizeof(float);
    auto pinned = Buffer::allocate(kBytes, {MemorySpace::kPinnedHost, 0});
    if (!pinned.has_value()) return text(pinned.error());
    const auto values = elements<float>(pinned.value().tensor(Shape::vector(kElems), DType::kF32));
    std::iota(values.begin(), values.end(), static_cast<float>(world.rank()));
    const Place nonsense = Place::make(kElems);
    for (int i = 0; i < kBefore; ++i) {
      const Status wrote = copy_bytes(nonsense.tensor().bytes(), kDevice, place.tensor().bytes(),
                                      kDevice, place.stream.stream());
      if (!wrote.ok()) return text(wrote);
    }
    const Status wrote = copy_bytes(pinned.value().bytes().first(kBytes), pinned.value().device(),
                                    place.tensor().bytes(), kDevice, place.stream.stream());
    if (!wrote.ok()) return text(wrote);
    auto work = world.all_reduce(place.tensor(), ReduceOp::kSum, place.options());
    if (!work.has_value()) return text(work.error());
    if (const Status ended = work.value().wait(); !ended.ok()) return text(ended);
    return place.read() == ramps_of_two(kElems) ? "" : "wrong sums";
  });
  EXPECT_THAT(faults, Each(""));
}

TEST(Staging, CountsWhatPassesThroughTheHost) {
  constexpr std::int64_t kElems = 300001;
  const auto faults = on_ranks(2, [](Communicator& world) -> std::string {
    const Place place = Place::make(kElems);
    const auto run = [&](const OpCall& call) -> std::uint64_t {
      const std::uint64_t before = world.transport_stats().bytes_staged;
      auto work = world.start(call, place.options());
      if (!work.has_value() || !work.value().wait().ok()) return 0;
      return world.transport_stats().bytes_staged - before;
    };
    constexpr std::uint64_t kBytes = kElems * sizeof(float);
    const TensorView all = place.tensor();
    const std::uint64_t sum = run({.kind = OpKind::kAllReduce, .in = all, .out = all});
    if (sum != 2 * kBytes) return "all_reduce: " + std::to_string(sum);
    // The root's goes to the host alone, the other's comes from there.
    const std::uint64_t cast = run({.kind = OpKind::kBroadcast, .in = all, .out = all});
    if (cast != kBytes) return "broadcast: " + std::to_string(cast);
    const std::uint64_t meet = run({.kind = OpKind::kBarrier});
    return meet == 0 ? "" : "barrier: " + std::to_string(meet);
  });
  EXPECT_THAT(faults, Each(""));
}

TEST(Staging, RanksOnTheHostMeetRanksOnADevice) {
  constexpr std::int64_t kElems = 4097;
  const auto faults = on_ranks(2, [](Communicator& world) -> std::string {
    const std::vector<float> own = ramp(kElems, world.rank());
    std::vector<float> here = own;
    const Place place = Place::make(kElems);
    if (const Status wrote = place.write(own); !wrote.ok()) return text(wrote);
    const bool on_host = world.rank() == 0;
    auto work = on_host ? world.all_reduce(view_of(std::span(here)), ReduceOp::kSum)
                        : world.all_reduce(place.tensor(), ReduceOp::kSum, place.options());
    if (!work.has_value()) return text(work.error());
    if (const Status ended = work.value().wait(); !ended.ok()) return text(ended);
    return (on_host ? here : place.read()) == ramps_of_two(kElems) ? "" : "wrong sums";
  });
  EXPECT_THAT(faults, Each(""));
}

// From the device into the host's memory, with an input that is scaled where it lies.
// Each rank's tensors are scaled where they are, before they are summed.
TEST(Staging, FusedTensorsAreScaledFirst) {
  constexpr std::int64_t kElems = 3000;
  const auto faults = on_ranks(2, [](Communicator& world) -> std::string {
    const Place place = Place::make(kElems);
    const std::vector<float> own = ramp(kElems, world.rank());
    if (const Status wrote = place.write(own); !wrote.ok()) return text(wrote);
    const TensorView parts[] = {place.tensor().slice(0, 1000), place.tensor().slice(1000, 2000)};
    OpOptions options = place.options();
    options.factor = 0.5;
    auto work = world.all_reduce_fused(parts, ReduceOp::kPreMulSum, options);
    if (!work.has_value()) return text(work.error());
    if (const Status ended = work.value().wait(); !ended.ok()) return text(ended);
    std::vector<float> expected = ramps_of_two(kElems);
    for (float& value : expected) value /= 2;
    return place.read() == expected ? "" : "wrong sums";
  });
  EXPECT_THAT(faults, Each(""));
}

TEST(Staging, InAndOutMayLieApart) {
  constexpr std::int64_t kElems = 70001;
  const auto faults = on_ranks(2, [](Communicator& world) -> std::string {
    const std::vector<float> own = ramp(kElems, world.rank());
    std::vector<float> sums(own.size());
    const Place place = Place::make(kElems);
    if (const Status wrote = place.write(own); !wrote.ok()) return text(wrote);
    OpOptions options = place.options();
    options.factor = 2;
    auto work = world.all_reduce(ConstTensorView(place.tensor()), view_of(std::span(sums)),
                                 ReduceOp::kPreMulSum, options);
    if (!work.has_value()) return text(work.error());
    if (const Status ended = work.value().wait(); !ended.ok()) return text(ended);
    std::vector<float> want = ramps_of_two(kElems);
    for (float& value : want) value *= 2;
    return sums == want && place.read() == own ? "" : "wrong sums, or another input";
  });
  EXPECT_THAT(faults, Each(""));
}

}  // namespace
}  // namespace gradwire::staging_test
