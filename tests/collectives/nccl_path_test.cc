// Communicators over NCCL beside their messages, and how they end: over a library that plays NCCL,
// on a device that the host plays. The laws of communicators are in tests/gpu/nccl.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/elements.h"
#include "collectives/device/nccl_execution.h"
#include "comm/inproc/inproc_transport.h"
#include "comm/nccl/nccl_calls.h"
#include "tests/emulation/emulated_device.h"
#include "tests/gpu/nccl/hanging_device.h"
#include "tests/gpu/nccl/nccl_threads.h"
#include "tests/gpu/nccl/over_fake_nccl.h"
#include "tests/gpu/on_device.h"
#include "tests/support/names.h"

namespace gradwire {
namespace {

using gpu::device_hangs;
using gpu::hang_when_all_are;
using gpu::on_nccl_threads;
using gpu::OnDevice;
using gpu::OwnStream;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

class NcclCommunicatorTest : public gpu::OverFakeNccl {
 protected:
  static std::vector<std::string> on_ranks(int ranks, const gpu::NcclProgram& program,
                                           double deadline_seconds = 20) {
    return on_nccl_threads(ranks, {.deadline_seconds = deadline_seconds}, {GW_FAKE_NCCL}, program);
  }
};

std::string text(const Status& status) { return std::string(status.message()); }

Status wait_for(Result<Work> work) { return work.has_value() ? work.value().wait() : work.error(); }

TEST_F(NcclCommunicatorTest, TensorsOnTheHostGoOverMessages) {
  const auto texts = on_ranks(3, [&](std::unique_ptr<Communicator> world) -> std::string {
    std::vector<float> sum{1, 2};
    const Status status = wait_for(world->all_reduce(view_of(std::span(sum)), ReduceOp::kSum));
    if (!status.ok()) return std::string(status.message());
    return sum == std::vector<float>{3, 6} ? "" : "wrong sum";
  });
  EXPECT_THAT(texts, Each(""));
  EXPECT_THAT(std::string(fake_.take_log()), Not(HasSubstr("ncclAllReduce")));
}

TEST_F(NcclCommunicatorTest, TensorsOnTheDeviceGoOverNccl) {
  const auto texts = on_ranks(3, [&](std::unique_ptr<Communicator> world) -> std::string {
    const OnDevice sum = gpu::uploaded(std::vector<float>{1, static_cast<float>(world->rank())});
    const OwnStream own;
    const std::uint64_t before = world->bytes_sent();
    const Status status =
        wait_for(world->all_reduce(sum.tensor<float>(), ReduceOp::kMean, own.options()));
    if (!status.ok()) return std::string(status.message());
    if (world->bytes_sent() - before != 8)
      return "bytes_sent is wrong";  // 2 elements of 2 * 2 * 2/3
    return sum.values<float>() == std::vector<float>{1, 1} ? world->describe() : "wrong mean";
  });
  EXPECT_THAT(texts, Each(HasSubstr("; CUDA device 0: NCCL 2.30.3 (")));
  EXPECT_THAT(std::string(fake_.take_log()),
              HasSubstr("ncclAllReduce rank 0: count 2 type 7 op 4 in place\n"));
}

// ncclMax and ncclMin prefer numbers to NaN: they get integers, of 8 bytes (type 4) or 4 (type 2).
TEST_F(NcclCommunicatorTest, MaximaOfFloatsAreNcclsOfIntegers) {
  const auto texts = on_ranks(2, [&](std::unique_ptr<Communicator> world) -> std::string {
    const std::vector<float> zeros{-0.0F, 0.0F};
    const OnDevice whole = gpu::uploaded(zeros);
    const OnDevice wide = gpu::uploaded(std::vector<double>{1, 2});
    const OnDevice narrow = gpu::uploaded(std::vector<std::uint16_t>{0x7c01, 0xbc00});
    const OnDevice count = gpu::uploaded(std::vector<std::int8_t>{3, 4});
    const OwnStream own;
    for (const TensorView& tensor :
         {whole.tensor<float>(), wide.tensor<double>(), narrow.tensor<std::uint16_t>(DType::kF16),
          count.tensor<std::int8_t>()}) {
      const Status status = wait_for(world->all_reduce(tensor, ReduceOp::kMin, own.options()));
      if (!status.ok()) return std::string(status.message());
    }
    if (narrow.values<std::uint16_t>() != std::vector<std::uint16_t>{0x7e00, 0xbc00}) return "f16";
    return whole.read() == gpu::uploaded(zeros).read() ? "" : "f32";
  });
  EXPECT_THAT(texts, Each(""));
  const std::string log = fake_.take_log();
  for (const char* type : {"2", "4", "0"}) {
    EXPECT_THAT(log, HasSubstr("ncclAllReduce rank 1: count 2 type " + std::string(type) +
                               " op 3 in place\n"));
  }
  EXPECT_THAT(log, Not(HasSubstr("type 7")));
}

// A rank alone has nothing to reduce, and its bits stay as they are.
TEST_F(NcclCommunicatorTest, MaximaOfOneRankKeepTheirBits) {
  const auto texts = on_ranks(1, [&](std::unique_ptr<Communicator> world) -> std::string {
    const OnDevice odd = gpu::uploaded(std::vector<std::uint32_t>{0xff800001});
    const Status status =
        wait_for(world->all_reduce(odd.tensor<std::uint32_t>(DType::kF32), ReduceOp::kMax));
    if (!status.ok()) return std::string(status.message());
    return odd.values<std::uint32_t>()[0] == 0xff800001 ? "" : "other bits";
  });
  EXPECT_THAT(texts, Each(""));
}

// Each call goes the way that it would go alone.
TEST_F(NcclCommunicatorTest, ABatchMayBeOnBothPlaces) {
  const auto texts = on_ranks(1, [&](std::unique_ptr<Communicator> world) -> std::string {
    const OnDevice there = gpu::uploaded(std::vector<float>{1});
    std::vector<float> here{2};
    const TensorView a = there.tensor<float>();
    const TensorView b = view_of(std::span(here));
    const std::vector<OpCall> calls{{.kind = OpKind::kAllReduce, .in = a, .out = a},
                                    {.kind = OpKind::kAllReduce, .in = b, .out = b}};
    const Status status = wait_for(world->start_all(calls));
    if (!status.ok()) return std::string(status.message());
    return there.values<float>()[0] == 1 && here[0] == 2 ? "" : "other values";
  });
  EXPECT_THAT(texts, Each(""));
}

// Each one's kernel would wait for the other's, which stands behind it.
TEST_F(NcclCommunicatorTest, RanksThatShareADeviceAsThreadsRefuseItsDefaultStream) {
  const auto texts = on_ranks(2, [](std::unique_ptr<Communicator> world) -> std::string {
    const OnDevice one = gpu::uploaded(std::vector<std::int32_t>{1});
    const TensorView tensor = one.tensor<std::int32_t>();
    const OpOptions there{.deadline = {}, .stream = gpu::kStream};
    // As cudaStreamLegacy is.
    const OpOptions legacy{.deadline = {}, .stream = {gpu::kFirst, reinterpret_cast<void*>(1)}};
    const auto blocking = cuda::OwnedStream::create(gpu::kFirst);
    if (!blocking.has_value()) return text(blocking.error());
    const OpOptions with_default{.deadline = {}, .stream = blocking.value().stream()};
    const Status refused = world->all_reduce(tensor, ReduceOp::kSum).error();
    for (const Status& other : {world->all_reduce(tensor, ReduceOp::kSum, legacy).error(),
                                world->all_reduce(tensor, ReduceOp::kSum, with_default).error(),
                                world->prepare(OpCall{.in = tensor, .out = tensor}, there).error(),
                                world->barrier(there).error()}) {
      if (other.code() != Code::kInvalidArgument) return "not refused: " + text(other);
    }
    // Nothing has begun: with streams of their own they go on, and who is alone may have it.
    const OwnStream own;
    const Status sum = wait_for(world->all_reduce(tensor, ReduceOp::kSum, own.options()));
    if (!sum.ok()) return text(sum);
    auto alone = world->split(world->rank(), 0);
    if (!alone.has_value()) return text(alone.error());
    const Status ended = wait_for(alone.value()->all_reduce(tensor, ReduceOp::kSum));
    if (!ended.ok()) return text(ended);
    return one.values<std::int32_t>() == std::vector<std::int32_t>{2} ? code_and_message(refused)
                                                                      : "wrong sum";
  });
  for (const int rank : {0, 1}) {
    EXPECT_THAT(
        texts[static_cast<std::size_t>(rank)],
        tells(to_string(Code::kInvalidArgument), "all_reduce", "rank " + std::to_string(1 - rank),
              "OpOptions::stream", "cudaStreamNonBlocking"));
  }
}

// Until 2.24 NCCL's kernels write into memory of other devices of the process.
TEST_F(NcclCommunicatorTest, PeersReachTheDevicesMemoryWhereAnOldNcclWritesThere) {
  emulation::play_devices(2);
  const auto made = [](std::unique_ptr<Communicator>) { return "made"; };
  constexpr int kOld = 22105;
  constexpr int kPlayed = 23003;
  fake_.be(22400);
  EXPECT_THAT(on_ranks(1, made), Each("made"));
  EXPECT_FALSE(emulation::may_use_memory_of(1, 0));
  fake_.be(kOld);
  EXPECT_THAT(on_ranks(1, made), Each("made"));
  EXPECT_TRUE(emulation::may_use_memory_of(1, 0));
  fake_.be(kPlayed);
  emulation::play_devices(1);
}

TEST_F(NcclCommunicatorTest, ALibraryThatIsMissingIsNamedOnAllRanks) {
  const auto texts = on_nccl_threads(2, {}, {"/nowhere/libnccl.so.2"},
                                     [](std::unique_ptr<Communicator>) { return "made"; });
  EXPECT_THAT(texts, Each(tells("NCCL", "/nowhere/libnccl.so.2")));
}

// The operation is on a device that passes no event until all ranks have asked.
TEST_F(NcclCommunicatorTest, AStreamWaitsWhereTheHostDoesNot) {
  std::atomic<int> there = 0;
  std::atomic<int> asked = 0;
  const auto texts = on_ranks(2, [&](std::unique_ptr<Communicator> world) -> std::string {
    const OnDevice sum = gpu::uploaded(std::vector<float>{1, 2});
    const OwnStream own, other;
    hang_when_all_are(there, 2);
    auto work = world->all_reduce(sum.tensor<float>(), ReduceOp::kSum, own.options());
    if (!work.has_value()) return text(work.error());
    const Status held = work.value().wait_on(other.stream());
    const bool returned_first = !work.value().done();
    const Code of_the_host = work.value().wait_on({}).code();
    if (++asked == 2) device_hangs = false;
    if (const Status status = work.value().wait(); !status.ok()) return text(status);
    if (!held.ok()) return text(held);
    if (!returned_first) return "it waited for the operation";
    if (of_the_host != Code::kInvalidArgument) return "a stream of the host was taken";
    return work.value().wait_on(other.stream()).ok() ? "" : "what is done cannot be waited for";
  });
  device_hangs = false;
  EXPECT_THAT(texts, Each(""));
}

// Its memory is a copy; what it must not do it would ask NCCL for.
TEST_F(NcclCommunicatorTest, AForkedChildAsksNcclForNothing) {
  const auto texts = on_ranks(1, [&](std::unique_ptr<Communicator> world) -> std::string {
    fake_.take_log();
    const pid_t child = fork();
    if (child == 0) {
      constexpr unsigned kLimit = 20;  // seconds
      alarm(kLimit);
      world.reset();
      _exit(std::string(fake_.take_log()).find("ncclComm") == std::string::npos ? 0 : 1);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return "no child";
    return status == 0 ? "" : "the child ended with wait status " + std::to_string(status);
  });
  EXPECT_THAT(texts, Each(""));
}

TEST_F(NcclCommunicatorTest, WhatTheDeviceNeverEndsEndsAtItsDeadline) {
  std::atomic<int> there = 0;
  const auto texts = on_ranks(
      2,
      [&there](std::unique_ptr<Communicator> world) -> std::string {
        const OnDevice byte(1);
        const OwnStream own;
        hang_when_all_are(there, 2);
        const TensorView tensor = byte.tensor<std::uint8_t>();
        const Status status = wait_for(world->all_reduce(tensor, ReduceOp::kMax, own.options()));
        const Status after = world->all_reduce(tensor, ReduceOp::kMax, own.options()).error();
        if (after.code() != status.code()) return "it goes on: " + std::string(after.message());
        return code_and_message(status);
      },
      0.3);
  device_hangs = false;
  EXPECT_THAT(texts, Each(tells("all_reduce", "operation 2", "0.3")));
  EXPECT_THAT(std::string(fake_.take_log()),
              AllOf(HasSubstr("ncclCommAbort rank 0\n"), HasSubstr("ncclCommAbort rank 1\n")));
}

TEST_F(NcclCommunicatorTest, WhatNcclFindsLaterEndsTheOperation) {
  std::atomic<int> there = 0;
  const auto texts = on_ranks(1, [&](std::unique_ptr<Communicator> world) {
    const OnDevice byte(1);
    hang_when_all_are(there, 1);
    auto work = world->all_reduce(byte.tensor<std::uint8_t>(), ReduceOp::kMax);
    constexpr int kSystemError = 2;
    fake_.fail("", kSystemError);
    const Status status = wait_for(std::move(work));
    fake_.fail("", -1);
    return code_and_message(status);
  });
  device_hangs = false;
  EXPECT_THAT(texts[0], tells(to_string(Code::kInternal), "result 2"));
}

// One operation, without the engine that drives it.
class NcclFlightTest : public NcclCommunicatorTest {
 protected:
  void SetUp() override {
    NcclCommunicatorTest::SetUp();
    const auto calls = nccl::open_calls({GW_FAKE_NCCL});
    ASSERT_TRUE(calls.has_value()) << calls.error().message();
    const auto id = nccl::make_id(*calls.value());
    ASSERT_TRUE(id.has_value()) << id.error().message();
    auto comm = NcclComm::create(calls.value(), {.id = id.value()}, deadline_in(20));
    ASSERT_TRUE(comm.has_value()) << comm.error().message();
    comm_ = std::move(comm).value();
    execution_ = std::make_unique<NcclExecution>(comm_, flight_, Route{}, std::vector<int>());
    auto transports = make_inproc_transports(1);
    ASSERT_TRUE(transports.has_value()) << transports.error().message();
    transport_ = std::move(transports.value().front());
  }
  void TearDown() override {
    device_hangs = false;
    execution_.reset();
    comm_.reset();
    NcclCommunicatorTest::TearDown();
  }
  // When NCCL has come back from its abort.
  bool settled_after_abort() {
    execution_->cancel(*transport_);
    EXPECT_TRUE(comm_->abort(20).ok());
    return execution_->settled(*transport_);
  }
  std::shared_ptr<NcclComm> comm_;
  std::shared_ptr<NcclFlight> flight_ = std::make_shared<NcclFlight>();
  std::unique_ptr<NcclExecution> execution_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(NcclFlightTest, TensorsAreLentUntilTheDeviceHasLeftThem) {
  auto point = cuda::Event::create(gpu::kFirst);
  ASSERT_TRUE(point.has_value()) << point.error().message();
  ASSERT_TRUE(point.value().record(gpu::kStream).ok());
  device_hangs = true;
  EXPECT_FALSE(settled_after_abort());  // its caller may enqueue yet
  flight_->enqueued(std::move(point).value(), 0);
  EXPECT_FALSE(execution_->settled(*transport_));
  device_hangs = false;
  EXPECT_TRUE(execution_->settled(*transport_));
}

TEST_F(NcclFlightTest, SoAreThoseOfWhatWasEnqueuedInPart) {
  device_hangs = true;
  flight_->failed(Status(Code::kInternal, "half of it"), gpu::kStream);
  EXPECT_FALSE(settled_after_abort());
  flight_->forget_stream();
  EXPECT_FALSE(execution_->settled(*transport_));
  device_hangs = false;
  EXPECT_TRUE(execution_->settled(*transport_));
}

// A point is made by the next look, if not by this one.
TEST_F(NcclFlightTest, WhereNoPointCanBeMadeNothingHasLeft) {
  flight_->failed(Status(Code::kInternal, "half of it"), gpu::kStream);
  emulation::refuse_events_after(0);
  EXPECT_FALSE(settled_after_abort());
  EXPECT_FALSE(execution_->settled(*transport_));
  emulation::refuse_events_after(emulation::kEndless);
  const Deadline until = deadline_in(20);
  while (!execution_->settled(*transport_) && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(execution_->settled(*transport_));
}

// Its caller could not wait any longer, and the stream may be gone.
TEST_F(NcclFlightTest, AStreamThatIsForgottenIsNotWaitedFor) {
  device_hangs = true;
  flight_->failed(Status(Code::kInternal, "half of it"), gpu::kStream);
  flight_->forget_stream();
  EXPECT_TRUE(settled_after_abort());
}

TEST_F(NcclCommunicatorTest, AfterAnAbortTheRanksGoOn) {
  const auto texts = on_ranks(3, [](std::unique_ptr<Communicator> world) -> std::string {
    if (world->rank() == 1) world->abort("out of disk");
    for (int i = 0; i < 2000 && world->status().ok(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    auto left = world->shrink();
    if (!left.has_value()) return std::string(left.error().message());
    const OnDevice one = gpu::uploaded(std::vector<std::int32_t>{1});
    const TensorView tensor = one.tensor<std::int32_t>();
    const OwnStream own;
    const Status status = wait_for(left.value()->all_reduce(tensor, ReduceOp::kSum, own.options()));
    if (!status.ok()) return std::string(status.message());
    return one.values<std::int32_t>() == std::vector<std::int32_t>{3} ? "" : "wrong sum";
  });
  EXPECT_THAT(texts, Each(""));
}

}  // namespace
}  // namespace gradwire
