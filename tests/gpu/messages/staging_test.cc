// What operations on a device's tensors wait for, what passes through the host, and what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/elements.h"
#include "device/cuda/memory_calls.h"
#include "device/cuda/stream.h"
#include "device/ops.h"
#include "gradwire/buffer.h"
#include "gradwire/communicator.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr Device kDevice{MemorySpace::kCuda, 0};

// One rank's stream and some of its memory on the device.
struct Place {
  static Place make(std::int64_t elems) {
    auto stream = cuda::OwnedStream::create(kDevice);
    auto buffer = Buffer::allocate(static_cast<std::size_t>(elems) * sizeof(float), kDevice);
    EXPECT_TRUE(stream.has_value() && buffer.has_value());
    return {std::move(stream).value(), std::move(buffer).value(), elems};
  }
  TensorView tensor() const { return buffer.tensor(Shape::vector(elems), DType::kF32); }
  OpOptions options() const {
    return {.algorithm = "auto", .deadline = {}, .stream = stream.stream()};
  }
  // Enqueued, so nothing waits; `values` live until it has run.
  Status write(const std::vector<float>& values) const {
    return copy_bytes(std::as_bytes(std::span(values)), {}, tensor().bytes(), kDevice,
                      stream.stream());
  }
  // As the device has them now.
  std::vector<float> read() const {
    const auto* first = reinterpret_cast<const float*>(buffer.bytes().data());
    return {first, first + elems};
  }

  cuda::OwnedStream stream;
  Buffer buffer;
  std::int64_t elems;
};

using Program = std::function<std::string(Communicator& world)>;

std::vector<std::string> on_ranks(int ranks, const Program& program,
                                  const CommunicatorOptions& options = {}) {
  emulation::run_later();
  auto made = make_inproc_communicators(ranks, options);
  if (!made.has_value()) return {std::string(made.error().message())};
  return on_threads<std::string>(ranks, [&](int rank) {
    auto world = std::move(made.value()[static_cast<std::size_t>(rank)]);
    return program(*world);
  });
}

std::string text(const Status& status) {
  return status.ok() ? ""
                     : std::string(to_string(status.code())) + ": " + std::string(status.message());
}

std::vector<float> ramp(std::int64_t elems, int rank) {
  std::vector<float> values(static_cast<std::size_t>(elems));
  std::iota(values.begin(), values.end(), static_cast<float>(rank));
  return values;
}

// The sum of ramp() over two ranks.
std::vector<float> ramps_of_two(std::int64_t elems) {
  std::vector<float> values(static_cast<std::size_t>(elems));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 2 * static_cast<float>(i) + 1;
  return values;
}

TEST(Staging, BeginsWhenTheStreamHasComeThereAndEndsWithTheResultInPlace) {
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

TEST(Staging, KeepsLittleOfALargeTensorInTheHostsMemory) {
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

TEST(Staging, ADeadlinePassesThoughTheDeviceIsBusy) {
  const CommunicatorOptions soon{.deadline_seconds = 0.3};
  EXPECT_THAT(on_ranks(1, sum_too_late, soon), Each(HasSubstr("waiting for its device")));
  EXPECT_THAT(on_ranks(2, sum_too_late, soon),
              Each(testing::AnyOf(HasSubstr("timed out"), HasSubstr("peer lost"))));
}

// What the device has to do last is waited for as all else is: nobody else's deadline suffers.
TEST(Staging, AFillThatTheDeviceDoesNotDoEndsAtTheDeadline) {
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
  EXPECT_THAT(faults, Each(HasSubstr("waiting for its device")));
}

// The device may keep whoever asks it for memory waiting until it is through.
TEST(Staging, TakesNoMemoryBeforeTheStreamHasComeThere) {
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
TEST(Staging, NothingIsUnderWayThatCannotBeFollowed) {
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
      EXPECT_THAT(faults, Each(testing::AllOf(HasSubstr("cudaEventCreateWithFlags"),
                                              HasSubstr("; 0 pending"))));
    } else {
      EXPECT_THAT(faults, Each("; 0 pending"));
    }
  }
  emulation::tarry(std::chrono::milliseconds(0));
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

TEST(Staging, RefusesWhatIsNotThere) {
  const auto faults = on_ranks(1, [](Communicator& world) -> std::string {
    const Place place = Place::make(8);
    const Device other{MemorySpace::kCuda, 1};
    const TensorView there(place.tensor().data(), Shape::vector(8), DType::kF32, other);
    EXPECT_THAT(text(world.all_reduce(there, ReduceOp::kSum, place.options()).error()),
                HasSubstr("in is in memory of CUDA device 1 (memory of CUDA device 0, as the "
                          "stream, or host memory wanted)"));
    EXPECT_THAT(
        text(world.all_reduce(place.tensor(), there, ReduceOp::kSum).error()),
        HasSubstr("tensors in memory of CUDA device 0 and in memory of CUDA device 1 (one device"));
    EXPECT_THAT(text(world.all_reduce(there, ReduceOp::kSum).error()),
                HasSubstr("cudaErrorInvalidDevice"));
    std::vector<float> here(8);
    const TensorView mixed[] = {place.tensor(), view_of(std::span(here))};
    EXPECT_THAT(text(world.all_reduce_fused(mixed, ReduceOp::kSum).error()),
                HasSubstr("(one place wanted)"));
    return text(world.status());
  });
  EXPECT_THAT(faults, Each(""));
}

}  // namespace
}  // namespace gradwire
