// A communicator of NCCL's over a library that plays NCCL, on a device that the host plays: what is
// called, in which groups, and that nothing waits for ever.
#include "comm/nccl/nccl_comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/nccl/nccl_calls.h"
#include "device/copy_lane.h"
#include "tests/comm/nccl/fake_nccl.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/names.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A stream of a rank's own.
class Lane {
 public:
  Lane() : lane_(CopyLane::create({MemorySpace::kCuda, 0}).value()) {}
  // Launches the steps and waits until they have run.
  Status run(NcclComm& comm, std::span<const NcclStep> steps) const {
    GW_TRY(comm.launch(steps, lane_->to_device(), deadline_in(20)));
    return lane_->finish(20);
  }

 private:
  std::unique_ptr<CopyLane> lane_;
};

std::string format_ranks(const NcclComm& comm) {
  return std::to_string(comm.rank()) + " of " + std::to_string(comm.size());
}

class NcclCommTest : public testing::Test {
 protected:
  void SetUp() override {
    auto calls = nccl::open_calls({GW_FAKE_NCCL});
    ASSERT_TRUE(calls.has_value()) << calls.error().message();
    calls_ = calls.value();
    auto fake = nccl_test::FakeNccl::open(GW_FAKE_NCCL);
    ASSERT_TRUE(fake.has_value()) << fake.error().message();
    fake_ = fake.value();
    fake_.take_log();
    ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);  // ranks share a device
  }
  void TearDown() override {
    for (const char* const call : {"", "ncclCommInitRankConfig", "ncclSend", "ncclGetUniqueId"}) {
      fake_.fail(call, -1);
    }
    EXPECT_EQ(fake_.living(), 0);
    ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  }
  // All ranks of one communicator, as threads.
  std::vector<std::string> on_ranks(int size,
                                    const std::function<std::string(NcclComm& comm)>& program) {
    const auto id = nccl::make_id(*calls_);
    if (!id.has_value()) return {std::string(id.error().message())};
    return on_threads<std::string>(size, [&](int rank) -> std::string {
      auto comm =
          NcclComm::create(calls_, {.id = id.value(), .rank = rank, .size = size}, deadline_in(20));
      return comm.has_value() ? program(*comm.value()) : std::string(comm.error().message());
    });
  }
  std::string log() const { return fake_.take_log(); }

  std::shared_ptr<const nccl::Calls> calls_;
  nccl_test::FakeNccl fake_{};
};

TEST_F(NcclCommTest, ComesUpWithoutBlockingAndEndsInOrder) {
  EXPECT_THAT(on_ranks(1, [](NcclComm& comm) { return format_ranks(comm); }),
              testing::ElementsAre("0 of 1"));
  EXPECT_EQ(log(),
            "ncclGetUniqueId\n"
            "ncclCommInitRankConfig rank 0 of 1, blocking 0\n"
            "ncclCommFinalize rank 0\n"
            "ncclCommDestroy rank 0\n");
}

TEST_F(NcclCommTest, StepsAreOneGroup) {
  std::vector<float> a{1, 2, 3}, b(3), c{4};
  const auto data = [](std::vector<float>& v) { return reinterpret_cast<std::byte*>(v.data()); };
  const std::vector<NcclStep> steps{
      {.kind = NcclStep::Kind::kAllReduce, .in = data(a), .out = data(b), .elems = 3},
      {.kind = NcclStep::Kind::kReduce,
       .in = data(c),
       .out = data(c),
       .elems = 1,
       .op = ReduceOp::kPreMulSum,
       .factor = 0.5},
      {.kind = NcclStep::Kind::kBroadcast,
       .in = data(a),
       .out = data(a),
       .elems = 12,
       .dtype = DType::kU8}};
  EXPECT_THAT(on_ranks(1,
                       [&](NcclComm& comm) {
                         log();
                         const Status status = Lane().run(comm, steps);
                         return std::string(status.message()) + "\n" + log();
                       }),
              testing::ElementsAre("ok\n"
                                   "ncclRedOpCreatePreMulSum rank 0: type 7 factor 0.5\n"
                                   "ncclGroupStart\n"
                                   "ncclAllReduce rank 0: count 3 type 7 op 0\n"
                                   "ncclReduce rank 0: count 1 type 7 op own root 0 in place\n"
                                   "ncclBroadcast rank 0: count 12 type 1 root 0 in place\n"
                                   "ncclGroupEnd\n"
                                   "ncclRedOpDestroy rank 0: op own\n"));
  EXPECT_EQ(b, a);
  EXPECT_EQ(c, std::vector<float>{2});
}

TEST_F(NcclCommTest, SendsAndReceivesMayStandInAnyOrder) {
  const auto texts = on_ranks(3, [](NcclComm& comm) -> std::string {
    std::vector<std::int32_t> own{comm.rank(), comm.rank() * 10};
    std::vector<std::int32_t> got(2, -1);
    const int next = (comm.rank() + 1) % 3;
    const int last = (comm.rank() + 2) % 3;
    const std::vector<NcclStep> steps{{.kind = NcclStep::Kind::kRecv,
                                       .out = reinterpret_cast<std::byte*>(got.data()),
                                       .elems = 2,
                                       .dtype = DType::kI32,
                                       .peer = last},
                                      {.kind = NcclStep::Kind::kSend,
                                       .in = reinterpret_cast<const std::byte*>(own.data()),
                                       .elems = 2,
                                       .dtype = DType::kI32,
                                       .peer = next}};
    const Status status = Lane().run(comm, steps);
    if (!status.ok()) return std::string(status.message());
    return got == std::vector<std::int32_t>{last, last * 10} ? "" : "wrong contents";
  });
  EXPECT_THAT(texts, testing::Each(""));
}

TEST_F(NcclCommTest, SplitsByColorAndKey) {
  const auto texts = on_ranks(4, [](NcclComm& comm) -> std::string {
    const int color = comm.rank() == 3 ? -1 : comm.rank() % 2;
    auto part = comm.split(color, -comm.rank(), deadline_in(20));
    if (!part.has_value()) return std::string(part.error().message());
    return part.value() == nullptr ? "none" : format_ranks(*part.value());
  });
  EXPECT_THAT(texts, testing::ElementsAre("1 of 2", "0 of 1", "0 of 2", "none"));
  EXPECT_THAT(log(), HasSubstr("ncclCommSplit rank 3: color -1 key -3\n"));
}

TEST_F(NcclCommTest, ASetUpThatNeverEndsEndsAtItsDeadline) {
  fake_.fail("", ncclInProgress);
  const auto texts = on_threads<std::string>(1, [&](int) {
    return code_and_message(NcclComm::create(calls_, {.id = {}}, deadline_in(0.05)).error());
  });
  EXPECT_THAT(texts[0], tells(to_string(Code::kTimedOut), "ncclCommInitRankConfig"));
  EXPECT_THAT(log(), HasSubstr("ncclCommAbort rank 0\n"));
}

TEST_F(NcclCommTest, ARefusedSetUpIsAborted) {
  fake_.fail("ncclCommInitRankConfig", ncclInvalidUsage);
  const auto made = NcclComm::create(calls_, {.id = {}}, deadline_in(20));
  EXPECT_THAT(made.error(), fails(Code::kInvalidArgument, "result 5", "ncclCommInitRankConfig"));
  EXPECT_THAT(log(), HasSubstr("ncclCommAbort rank 0\n"));
}

TEST_F(NcclCommTest, ADeviceThatIsNotThereIsRefusedBeforeNcclIsAsked) {
  const auto made =
      NcclComm::create(calls_, {.id = {}, .device = {MemorySpace::kCuda, 77}}, deadline_in(20));
  EXPECT_THAT(made.error(),
              fails(Code::kInvalidArgument, "cudaErrorInvalidDevice", "cudaSetDevice"));
  EXPECT_EQ(log(), "");
}

TEST_F(NcclCommTest, AGroupEndsWhereACallInItFails) {
  std::vector<std::byte> byte(1);
  const std::vector<NcclStep> steps{
      {.kind = NcclStep::Kind::kSend, .in = byte.data(), .elems = 1, .dtype = DType::kU8}};
  const auto texts = on_ranks(1, [&](NcclComm& comm) {
    log();
    fake_.fail("ncclSend", ncclSystemError);
    const Status status = Lane().run(comm, steps);
    EXPECT_THAT(status, fails(Code::kInternal, "result 2", "ncclSend"));
    return log();
  });
  EXPECT_EQ(texts[0], "ncclGroupStart\nncclSend rank 0: count 1 type 1 to 0\nncclGroupEnd\n");
}

TEST_F(NcclCommTest, LaterErrorsAreStateAndAbortIsFinal) {
  const auto texts = on_ranks(1, [&](NcclComm& comm) -> std::string {
    if (!comm.state().ok()) return "an error at first";
    fake_.fail("", ncclRemoteError);
    const Status lost = comm.state();
    if (lost.code() != Code::kPeerLost) return std::string(lost.message());
    fake_.fail("", -1);
    if (!comm.abort(20).ok() || !comm.abort(20).ok()) return "abort() fails";
    const std::vector<NcclStep> steps{{.kind = NcclStep::Kind::kAllReduce}};
    const Status after = Lane().run(comm, steps);
    return after.code() == Code::kCancelled ? "" : std::string(after.message());
  });
  EXPECT_EQ(texts[0], "");
}

// NCCL puts the device of its caller back, which on a device that nobody uses makes a context.
TEST_F(NcclCommTest, CommunicatorsEndOnTheirOwnDevice) {
  emulation::play_devices(2);
  fake_.ask_device(emulation::current_device);
  for (const bool in_order : {true, false}) {
    const auto id = nccl::make_id(*calls_);
    ASSERT_TRUE(id.has_value()) << id.error().message();
    const auto comm = NcclComm::create(
        calls_, {.id = id.value(), .device = {MemorySpace::kCuda, 1}}, deadline_in(20));
    ASSERT_TRUE(comm.has_value()) << comm.error().message();
    EXPECT_EQ(emulation::current_device(), 0);
    if (!in_order) {
      EXPECT_TRUE(comm.value()->abort(20).ok());
    }
  }
  fake_.ask_device(nullptr);
  emulation::play_devices(1);
  EXPECT_EQ(emulation::current_device(), 0);
  EXPECT_THAT(log(), AllOf(HasSubstr("ncclCommFinalize rank 0 on device 1\n"),
                           HasSubstr("ncclCommDestroy rank 0 on device 1\n"),
                           HasSubstr("ncclCommAbort rank 0 on device 1\n")));
}

}  // namespace
}  // namespace gradwire
