// What operations on a device's tensors wait for, what they keep of the host's memory, and what is
// refused: on the device that the host plays, which is held, and counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulation/emulated_device.h"
#include "tests/gpu/messages/staging_place.h"
#include "tests/support/names.h"

namespace gradwire::staging_held_test {
namespace {

using staging::on_ranks;
using staging::Place;
using staging::ramp;
using staging::ramps_of_two;
using staging::text;
using ::testing::Each;

TEST(StagingHeld, BeginsWhenTheStreamHasComeThereAndEndsWithTheResultInPlace) {
  constexpr std::int64_t kElems = 1 << 20;
  const auto faults = on_ranks(2, [](Communicator& world) -> std::string {
    const Place place = Place::make(kElems);
    const std::vector<float> own = ramp(kElems, world.rank());
    void* const stream = place.stream.stream().native;
    if (world.rank() == 0) emulation::hold(stream);  // as behind a long kernel
    if (const Status wrote = place.write(own); !wrote.ok()) return text(wrote);
    auto work = world.all_reduce(place.tensor(), ReduceOp::kSum, place.options());
    if (!work.has_value()) return text(work.error());
    if (world.rank() == 0) {
      const Status early = work.value().wait(deadline_in(0.05));
      emulation::release(stream);
      if (early.code() != Code::kTimedOut) return "did not wait for the stream: " + text(early);
    }
    if (const Status ended = work.value().wait(); !ended.ok()) return text(ended);
    return place.read() == ramps_of_two(kElems) ? "" : "wrong sums";
  });
  EXPECT_THAT(faults, Each(""));
}

TEST(StagingHeld, KeepsLittleOfALargeTensorInTheHostsMemory) {
  constexpr std::int64_t kElems = 16 << 20;  // 64 MiB
  const auto faults = on_ranks(2, [](Communicator& world) -> std::string {
    const Place place = Place::make(kElems);
    const std::vector<float> own = ramp(kElems, world.rank());
    if (const Status wrote = place.write(own); !wrote.ok()) return text(wrote);
    auto work = world.all_reduce(place.tensor(), ReduceOp::kMax, place.options());
    if (!work.has_value()) return text(work.error());
    if (const Status ended = work.value().wait(); !ended.ok()) return text(ended);
    if (place.read() != ramp(kElems, 1)) return "wrong maxima";
    const std::size_t most = emulation::most_pinned_bytes();
    return most <= 32u << 20 ? "" : std::to_string(most) + " bytes pinned for two ranks";
  });
  EXPECT_THAT(faults, Each(""));
}

// Sums on a stream that never comes there, until the deadline; the tensor is to be left alone.
std::string sum_too_late(Communicator& world) {
  constexpr std::int64_t kElems = 1000;
  const Place place = Place::make(kElems);
  const std::vector<float> own = ramp(kElems, world.rank());
  void* const stream = place.stream.stream().native;
  if (world.rank() == 0) emulation::hold(stream);
  if (const Status wrote = place.write(own); !wrote.ok()) return text(wrote);
  auto work = world.all_reduce(place.tensor(), ReduceOp::kSum, place.options());
  if (!work.has_value()) return text(work.error());
  const Status ended = work.value().wait();
  emulation::release(stream);
  if (const Status ran = cuda::synchronize(place.stream.stream()); !ran.ok()) return text(ran);
  return place.read() == own ? text(ended) : "the tensor has changed";
}

TEST(StagingHeld, ADeadlinePassesThoughTheDeviceIsBusy) {
  const CommunicatorOptions soon{.deadline_seconds = 0.3};
  EXPECT_THAT(on_ranks(1, sum_too_late, soon),
              Each(tells(to_string(Code::kTimedOut), "rank 0", "all_reduce", "device", "0.3")));
  EXPECT_THAT(on_ranks(2, sum_too_late, soon),
              Each(::testing::AnyOf(tells(to_string(Code::kTimedOut), "all_reduce"),
                                    tells(to_string(Code::kPeerLost), "all_reduce"))));
}

// What the device has to do last is waited for as all else is: nobody else's deadline suffers.
TEST(StagingHeld, AFillThatTheDeviceDoesNotDoEndsAtTheDeadline) {
  const CommunicatorOptions soon{.deadline_seconds = 0.3};
  const auto faults = on_ranks(
      1,
      [](Communicator& world) -> std::string {
        const Place place = Place::make(1000);
        emulation::hold_apart(true);
        auto work =
            world.exclusive_scan(place.tensor(), place.tensor(), ReduceOp::kMax, place.options());
        const Status ended = work.has_value() ? work.value().wait() : work.error();
        emulation::hold_apart(false);
        return text(ended);
      },
      soon);
  EXPECT_THAT(faults,
              Each(tells(to_string(Code::kTimedOut), "rank 0", "exclusive_scan", "device", "0.3")));
}

// The device may keep whoever asks it for memory waiting until it is through.
TEST(StagingHeld, TakesNoMemoryBeforeTheStreamHasComeThere) {
  constexpr std::int64_t kElems = 1000;
  const auto faults = on_ranks(1, [](Communicator& world) -> std::string {
    const Place place = Place::make(kElems);
    const std::vector<float> own = ramp(kElems, 0);
    emulation::hold(place.stream.stream().native);
    if (const Status wrote = place.write(own); !wrote.ok()) return text(wrote);
    const std::size_t before = emulation::allocations();
    auto work = world.all_reduce(place.tensor(), ReduceOp::kSum, place.options());
    if (!work.has_value()) return text(work.error());
    const Status early = work.value().wait(deadline_in(0.05));
    const std::size_t taken = emulation::allocations() - before;
    emulation::release(place.stream.stream().native);
    if (early.code() != Code::kTimedOut) return "did not wait for the stream: " + text(early);
    if (const Status ended = work.value().wait(); !ended.ok()) return text(ended);
    return taken == 0 ? "" : std::to_string(taken) + " allocations while the device was busy";
  });
  EXPECT_THAT(faults, Each(""));
}

// Otherwise memory would be given back that the device still copies to.
TEST(StagingHeld, NothingIsUnderWayThatCannotBeFollowed) {
  constexpr std::int64_t kElems = 1 << 20;
  emulation::tarry(std::chrono::milliseconds(20));
  for (std::size_t events = 1; events <= 5; ++events) {  // the call's own, and of four slots
    const auto faults = on_ranks(1, [&](Communicator& world) -> std::string {
      const Place place = Place::make(kElems);
      const Place other = Place::make(kElems);
      emulation::refuse_events_after(events);
      auto work = world.all_reduce(ConstTensorView(place.tensor()), other.tensor(), ReduceOp::kSum,
                                   place.options());
      const Status ended = work.has_value() ? work.value().wait() : work.error();
      emulation::refuse_events_after(emulation::kEndless);
      return text(ended) + "; " + std::to_string(emulation::pending_apart()) + " pending";
    });
    if (events < 5) {
      EXPECT_THAT(faults, Each(tells("cudaEventCreateWithFlags", "0 pending")));
    } else {
      EXPECT_THAT(faults, Each("; 0 pending"));
    }
  }
  emulation::tarry(std::chrono::milliseconds(0));
}

// A factor is multiplied in on the caller's stream, behind what that has.
TEST(StagingHeld, AFactorIsThatOfWhatTheStreamBrings) {
  constexpr std::int64_t kElems = 1000;
  const auto faults = on_ranks(2, [](Communicator& world) -> std::string {
    const Place place = Place::make(kElems);
    const std::vector<float> own = ramp(kElems, 1);
    void* const stream = place.stream.stream().native;
    emulation::hold(stream);
    if (const Status wrote = place.write(own); !wrote.ok()) return text(wrote);
    OpOptions options = place.options();
    options.factor = 1 + world.rank();
    auto work = world.all_reduce(place.tensor(), ReduceOp::kPreMulSum, options);
    const Status early = work.has_value() ? work.value().wait(deadline_in(0.05)) : work.error();
    emulation::release(stream);
    if (early.code() != Code::kTimedOut) return "did not wait for the stream: " + text(early);
    if (const Status ended = work.value().wait(); !ended.ok()) return text(ended);
    std::vector<float> wanted = own;
    for (float& value : wanted) value *= 3;
    return place.read() == wanted ? "" : "wrong sums";
  });
  EXPECT_THAT(faults, Each(""));
}

// The device may copy to the host's memory yet, which is therefore not given back: with it goes
// the transport.
TEST(StagingHeld, MemoryOfWhatHasFailedIsKeptWhileTheDeviceIsThere) {
  constexpr double kLimit = 20;
  const auto faults = on_ranks(1, [](Communicator& world) -> std::string {
    const Place place = Place::make(1000);
    const Place other = Place::make(1000);
    emulation::hold_apart(true);
    auto work = world.all_reduce(ConstTensorView(place.tensor()), other.tensor(), ReduceOp::kSum,
                                 place.options());
    const Deadline until = deadline_in(kLimit);
    while (emulation::pending_apart() == 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    world.abort("on purpose");
    const Status ended = work.has_value() ? work.value().wait() : work.error();
    const auto left = world.shrink(deadline_in(1));
    emulation::hold_apart(false);
    while (emulation::pending_apart() > 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return text(ended) + "; " + text(left.error());
  });
  EXPECT_THAT(faults,
              Each(tells("on purpose", to_string(Code::kUnsupported), "transport is gone")));
}

TEST(StagingHeld, RefusesWhatIsNotThere) {
  const auto faults = on_ranks(1, [](Communicator& world) -> std::string {
    const Place place = Place::make(8);
    const Device other{MemorySpace::kCuda, 1};
    const TensorView there(place.tensor().data(), Shape::vector(8), DType::kF32, other);
    constexpr Code kInvalid = Code::kInvalidArgument;
    EXPECT_THAT(world.all_reduce(there, ReduceOp::kSum, place.options()).error(),
                fails(kInvalid, "all_reduce", "CUDA device 1", "CUDA device 0", "stream", "host"));
    EXPECT_THAT(world.all_reduce(place.tensor(), there, ReduceOp::kSum).error(),
                fails(kInvalid, "all_reduce", "CUDA device 0", "CUDA device 1", "one device"));
    EXPECT_THAT(world.all_reduce(there, ReduceOp::kSum).error(),
                fails(kInvalid, "cudaErrorInvalidDevice"));
    std::vector<float> here(8);
    const TensorView mixed[] = {place.tensor(), view_of(std::span(here))};
    EXPECT_THAT(world.all_reduce_fused(mixed, ReduceOp::kSum).error(),
                fails(kInvalid, "all_reduce_fused", "CUDA device 0", "host"));
    return text(world.status());
  });
  EXPECT_THAT(faults, Each(""));
}

}  // namespace
}  // namespace gradwire::staging_held_test
