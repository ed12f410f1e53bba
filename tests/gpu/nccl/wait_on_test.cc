// What Work::wait_on() promises, on a device that comes to its work later than it is told: over
// NCCL the stream waits and the host does not, and what the host drives has ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "collectives/device/nccl_execution.h"
#include "device/cuda/stream.h"
#include "device/ops.h"
#include "tests/emulation/emulated_device.h"
#include "tests/gpu/nccl/nccl_threads.h"
#include "tests/gpu/nccl/over_fake_nccl.h"
#include "tests/gpu/on_device.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

using gpu::kFirst;
using gpu::OnDevice;
using gpu::OwnStream;
using testing::Each;

const std::vector<float> kValues{1, 2};
constexpr int kSystemError = 2;  // ncclSystemError

std::string text(const Status& status) { return std::string(status.message()); }

Status copy(const OnDevice& from, const OnDevice& to, const OwnStream& behind) {
  return copy_bytes(from.bytes(), kFirst, to.bytes(), kFirst, behind.stream());
}

Result<cuda::Event> point_on(const OwnStream& stream) {
  GW_ASSIGN(cuda::Event point, cuda::Event::create(kFirst));
  GW_TRY(point.record(stream.stream()));
  return point;
}

Status await(const cuda::Event& point) {
  for (const Deadline until = deadline_in(20); std::chrono::steady_clock::now() < until;) {
    GW_ASSIGN(const bool passed, point.passed());
    if (passed) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {Code::kTimedOut, "the point was not passed"};
}

// Long enough for what could run.
Status let_others_run() {
  const OwnStream stream;
  for (int turn = 0; turn < 5; ++turn) {
    GW_ASSIGN(const cuda::Event point, point_on(stream));
    GW_TRY(await(point));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return {};
}

class WaitOnNccl : public gpu::OverFakeNccl {};

// The sum comes to `out` when the device comes to it, and what follows on `other` not before.
std::string sum_behind_held_stream(Communicator& world) {
  const OnDevice in = gpu::uploaded(kValues), out(8), seen(8);
  const OwnStream own, other;
  emulation::hold(own.stream().native);
  auto work =
      world.all_reduce(in.tensor<float>(), out.tensor<float>(), ReduceOp::kSum, own.options());
  if (!work.has_value()) return text(work.error());
  const Status held = work.value().wait_on(other.stream());
  const bool at_once = !work.value().done();
  const Status copied = copy(out, seen, other);
  const auto behind = point_on(other);
  const Status others = let_others_run();
  const auto passed = behind.has_value() ? behind.value().passed() : behind.error();
  emulation::release(own.stream().native);
  const Status ended = work.value().wait();
  for (const Status& status : {held, copied, behind.error(), others, passed.error(), ended}) {
    if (!status.ok()) return text(status);
  }
  if (!at_once) return "it waited for the operation";
  if (passed.value()) return "the stream did not wait";
  if (const Status come = await(behind.value()); !come.ok()) return text(come);
  return seen.values<float>() == kValues ? "" : "the stream went on before the operation";
}

TEST_F(WaitOnNccl, MakesTheStreamWait) {
  const auto texts = gpu::on_nccl_threads(
      1, {.deadline_seconds = 60}, {GW_FAKE_NCCL},
      [](std::unique_ptr<Communicator> world) { return sum_behind_held_stream(*world); });
  EXPECT_THAT(texts, Each(""));
}

// As soon as the stream has come past it.
TEST_F(WaitOnNccl, IsDoneWhenItsStreamHasComePast) {
  constexpr int kTimes = 20;
  const auto texts = gpu::on_nccl_threads(
      1, {.deadline_seconds = 60}, {GW_FAKE_NCCL},
      [](std::unique_ptr<Communicator> world) -> std::string {
        const OnDevice sum = gpu::uploaded(kValues);
        const OwnStream own;
        for (int i = 0; i < kTimes; ++i) {
          auto work = world->all_reduce(sum.tensor<float>(), ReduceOp::kSum, own.options());
          if (!work.has_value()) return text(work.error());
          std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the engine sleeps
          if (const Status past = cuda::synchronize(own.stream()); !past.ok()) return text(past);
          if (!work.value().done()) return "not done in round " + std::to_string(i);
        }
        return "";
      });
  EXPECT_THAT(texts, Each(""));
}

// Until the stream has come past what may be on it.
TEST(NcclFlights, OneThatFailedHasNotLeftBeforeItsStreamHasComePast) {
  const OwnStream own;
  NcclFlight flight;
  EXPECT_FALSE(flight.left());
  emulation::hold(own.stream().native);
  emulation::run_on(own.stream().native, [] {});
  flight.failed({Code::kInternal, "on purpose"}, own.stream());
  EXPECT_FALSE(flight.left());
  EXPECT_EQ(let_others_run().code(), Code::kOk);
  EXPECT_FALSE(flight.left());
  emulation::release(own.stream().native);
  const Deadline until = deadline_in(20);
  while (!flight.left() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(flight.left());
}

// A call that fails waits until its stream has come past what may have been enqueued.
std::string sum_that_fails(Communicator& world) {
  const OnDevice in = gpu::uploaded(kValues), out(8);
  const OwnStream own;
  std::atomic<bool> released = false;
  emulation::hold(own.stream().native);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    released = true;
    emulation::release(own.stream().native);
  });
  auto work =
      world.all_reduce(in.tensor<float>(), out.tensor<float>(), ReduceOp::kSum, own.options());
  const bool waited = released;
  later.join();
  if (work.has_value()) return "it did not fail";
  return waited ? "" : "it did not wait for its stream: " + text(work.error());
}

TEST_F(WaitOnNccl, ACallThatFailsWaitsForItsStream) {
  const auto texts = gpu::on_nccl_threads(1, {.deadline_seconds = 60}, {GW_FAKE_NCCL},
                                          [&](std::unique_ptr<Communicator> world) {
                                            fake_.fail("ncclAllReduce", kSystemError);
                                            return sum_that_fails(*world);
                                          });
  fake_.fail("ncclAllReduce", -1);
  EXPECT_THAT(texts, Each(""));
}

// By messages: when it returns the operation has ended, and any stream has the result.
std::string sum_by_messages(Communicator& world) {
  const OnDevice sum = gpu::uploaded(kValues), seen(8);
  const OwnStream own, other;
  auto work = world.all_reduce(sum.tensor<float>(), ReduceOp::kSum, own.options());
  if (!work.has_value()) return text(work.error());
  if (const Status waited = work.value().wait_on(other.stream()); !waited.ok()) return text(waited);
  if (!work.value().done()) return "it returned before the end";
  if (const Status copied = copy(sum, seen, other); !copied.ok()) return text(copied);
  const auto behind = point_on(other);
  const Status come = behind.has_value() ? await(behind.value()) : behind.error();
  if (!come.ok()) return text(come);
  return seen.values<float>() == std::vector<float>{2, 4} ? "" : "the stream has another sum";
}

// NCCL splits what is idle: operations that the device has still to run are waited for.
TEST_F(WaitOnNccl, ASplitWaitsForWhatIsUnderWay) {
  const auto texts = gpu::on_nccl_threads(
      2, {}, {GW_FAKE_NCCL}, [](std::unique_ptr<Communicator> world) -> std::string {
        const OnDevice values = gpu::uploaded(kValues);
        const OwnStream own;
        emulation::hold(own.stream().native);
        auto work = world->all_reduce(values.tensor<float>(), ReduceOp::kSum, own.options());
        if (!work.has_value()) return text(work.error());
        std::atomic<bool> released = false;
        std::thread later([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          released = true;
          emulation::release(own.stream().native);
        });
        auto part = world->split(0, world->rank());
        const bool waited = released;
        later.join();
        const Status ended = work.value().wait();
        if (!part.has_value()) return text(part.error());
        if (!ended.ok()) return text(ended);
        return waited ? "" : "it split a communicator in use";
      });
  EXPECT_THAT(texts, Each(""));
}

TEST(WaitOnMessages, IsWait) {
  auto made = make_inproc_communicators(2, {.deadline_seconds = 60});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  std::latch summed(2);  // no abort reaches a rank before
  const auto texts = on_threads<std::string>(2, [&](int r) -> std::string {
    const auto world = std::move(made.value()[static_cast<std::size_t>(r)]);
    std::string fault = sum_by_messages(*world);
    summed.arrive_and_wait();
    if (!fault.empty()) return fault;
    std::vector<float> here(3, 1.0f);
    auto work = r == 0 ? world->all_reduce(view_of(std::span(here)), ReduceOp::kSum)
                       : Result<Work>(Status(Code::kCancelled, "not called"));
    if (r == 1) world->abort("on purpose");
    if (r == 1) return "";
    if (!work.has_value()) return "";  // the news was quicker
    return work.value().wait_on({}).ok() ? "an aborted operation ended well" : "";
  });
  EXPECT_THAT(texts, Each(""));
}

}  // namespace
}  // namespace gradwire
