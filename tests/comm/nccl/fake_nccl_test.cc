// What tests over the library that plays NCCL rely on: that it finds what NCCL would not let pass.
// One thread drives all ranks, each on a stream of its own.
#include "tests/comm/nccl/fake_nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/small_floats.h"
#include "comm/nccl/nccl_calls.h"
#include "comm/nccl/nccl_comm.h"
#include "device/copy_lane.h"
#include "device/cuda/memory_calls.h"
#include "tests/emulation/emulated_device.h"

namespace gradwire::fake_nccl_test {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr double kSeconds = 20;
constexpr std::chrono::milliseconds kShort(60);  // in which what could end has ended

// A rank: its communicator and stream.
struct Rank {
  ncclComm_t comm = nullptr;
  std::unique_ptr<CopyLane> lane;
  cudaStream_t stream() const { return static_cast<cudaStream_t>(lane->to_device().native); }
};

class FakeNcclTest : public testing::Test {
 protected:
  void SetUp() override {
    auto calls = nccl::open_calls({GW_FAKE_NCCL});
    ASSERT_TRUE(calls.has_value()) << calls.error().message();
    calls_ = calls.value();
    auto fake = nccl_test::FakeNccl::open(GW_FAKE_NCCL);
    ASSERT_TRUE(fake.has_value()) << fake.error().message();
    fake_ = fake.value();
    ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  }
  void TearDown() override {
    fake_.fail("rank 1", -1);
    fake_.be(23003);
    for (const Rank& rank : ranks_) {
      if (rank.comm != nullptr) calls_->abort(rank.comm);
    }
    EXPECT_EQ(fake_.living(), 0);
    ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  }

  ncclResult_t init(const ncclUniqueId& id, int size, int rank, int device = 0) {
    const Device place{MemorySpace::kCuda, device};
    const cuda::OnDevice here(place);
    Rank made{.lane = CopyLane::create(place).value()};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t result = calls_->init(&made.comm, size, id, rank, &config);
    if (made.comm != nullptr) ranks_.push_back(std::move(made));
    return result;
  }
  ncclUniqueId make_id() const {
    ncclUniqueId id;
    EXPECT_EQ(calls_->unique_id(&id), ncclSuccess);
    return id;
  }
  // Ranks that are ready.
  void init_all(int size) {
    const ncclUniqueId id = make_id();
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(init(id, size, rank), ncclInProgress);
    for (const Rank& rank : ranks_) EXPECT_EQ(settle(rank), ncclSuccess);
  }
  ncclResult_t look(const Rank& rank) const {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(calls_->async_error(rank.comm, &state), ncclSuccess);
    return state;
  }
  // What the communicator comes to; in progress where it does not in time.
  ncclResult_t settle(const Rank& rank, double seconds = kSeconds) const {
    ncclResult_t state = ncclInProgress;
    const Deadline until = deadline_in(seconds);
    while (state == ncclInProgress && std::chrono::steady_clock::now() < until) {
      state = look(rank);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return state;
  }
  // Whether the rank's stream comes to its end.
  static bool ends(const Rank& rank, double seconds = kSeconds) {
    return rank.lane->finish(seconds).ok();
  }
  static bool stays(const Rank& rank) {
    return rank.lane->finish(std::chrono::duration<double>(kShort).count()).code() ==
           Code::kTimedOut;
  }
  template <typename T>
  ncclResult_t sum(const Rank& rank, std::vector<T>& values, ncclDataType_t type,
                   ncclRedOp_t op = ncclSum) const {
    return calls_->all_reduce(values.data(), values.data(), values.size(), type, op, rank.comm,
                              rank.stream());
  }
  ncclResult_t scaled_sum(const Rank& rank) const {
    float factor = 0.5F;
    ncclRedOp_t op = ncclSum;
    return calls_->create_pre_mul_sum(&op, &factor, ncclFloat32, ncclScalarHostImmediate,
                                      rank.comm);
  }
  ncclResult_t send(const Rank& rank, const std::vector<int>& values, int to) const {
    return calls_->send(values.data(), values.size(), ncclInt32, to, rank.comm, rank.stream());
  }
  ncclResult_t receive(const Rank& rank, std::vector<int>& values, int from) const {
    return calls_->recv(values.data(), values.size(), ncclInt32, from, rank.comm, rank.stream());
  }
  // All ranks' values, reduced.
  template <typename T>
  void reduce_all(std::vector<std::vector<T>>& values, ncclDataType_t type,
                  ncclRedOp_t op = ncclSum) {
    EXPECT_EQ(calls_->group_start(), ncclSuccess);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      EXPECT_EQ(sum(ranks_[r], values[r], type, op), ncclSuccess);
    }
    EXPECT_EQ(calls_->group_end(), ncclInProgress);
    for (const Rank& rank : ranks_) EXPECT_EQ(settle(rank), ncclSuccess);
    for (const Rank& rank : ranks_) EXPECT_TRUE(ends(rank));
  }
  void abort(Rank& rank) {
    EXPECT_EQ(calls_->abort(std::exchange(rank.comm, nullptr)), ncclSuccess);
  }

  std::shared_ptr<const nccl::Calls> calls_;
  nccl_test::FakeNccl fake_{};
  std::vector<Rank> ranks_;
};

TEST_F(FakeNcclTest, RefusesCallsWhileOneIsInProgress) {
  const ncclUniqueId id = make_id();
  ASSERT_EQ(init(id, 1, 0), ncclInProgress);
  const Rank& rank = ranks_[0];
  std::vector<int> values{1};
  int size = 0;
  ncclComm_t part = nullptr;
  EXPECT_EQ(sum(rank, values, ncclInt32), ncclInvalidArgument);
  EXPECT_EQ(calls_->split(rank.comm, 0, 0, &part, nullptr), ncclInvalidArgument);
  EXPECT_EQ(calls_->count(rank.comm, &size), ncclInvalidArgument);
  EXPECT_EQ(calls_->user_rank(rank.comm, &size), ncclInvalidArgument);
  EXPECT_EQ(scaled_sum(rank), ncclInvalidArgument);
  EXPECT_EQ(calls_->finalize(rank.comm), ncclInvalidArgument);
  ASSERT_EQ(settle(rank), ncclSuccess);
  ASSERT_EQ(sum(rank, values, ncclInt32), ncclInProgress);
  EXPECT_EQ(sum(rank, values, ncclInt32), ncclInvalidArgument);
  EXPECT_EQ(settle(rank), ncclSuccess);
  EXPECT_EQ(sum(rank, values, ncclInt32), ncclInProgress);
}

TEST_F(FakeNcclTest, RefusesToDestroyWhatIsBeingFinalized) {
  init_all(1);
  Rank& rank = ranks_[0];
  EXPECT_EQ(calls_->finalize(rank.comm), ncclInProgress);
  EXPECT_EQ(calls_->destroy(rank.comm), ncclInvalidArgument);
  EXPECT_EQ(fake_.living(), 1);
  EXPECT_EQ(settle(rank), ncclSuccess);
  EXPECT_EQ(calls_->destroy(std::exchange(rank.comm, nullptr)), ncclSuccess);
}

TEST_F(FakeNcclTest, RefusesTheUseOfWhatHasEnded) {
  for (const bool is_aborted : {false, true}) {
    init_all(1);
    const ncclComm_t gone = ranks_[0].comm;
    EXPECT_EQ(is_aborted ? calls_->abort(gone) : calls_->destroy(gone), ncclSuccess);
    std::vector<int> values{1};
    int size = 0;
    ncclComm_t part = nullptr;
    ncclResult_t error = ncclSuccess;
    EXPECT_EQ(sum(ranks_[0], values, ncclInt32), ncclInvalidUsage) << is_aborted;
    EXPECT_EQ(calls_->split(gone, 0, 0, &part, nullptr), ncclInvalidUsage) << is_aborted;
    EXPECT_EQ(calls_->count(gone, &size), ncclInvalidUsage) << is_aborted;
    EXPECT_EQ(calls_->async_error(gone, &error), ncclInvalidUsage) << is_aborted;
    EXPECT_EQ(calls_->finalize(gone), ncclInvalidUsage) << is_aborted;
    EXPECT_EQ(calls_->destroy(gone), ncclInvalidUsage) << is_aborted;
    EXPECT_EQ(calls_->abort(gone), ncclInvalidUsage) << is_aborted;
    EXPECT_EQ(fake_.living(), 0);
    ranks_.clear();
  }
}

TEST_F(FakeNcclTest, RefusesRanksThatAreNoneAndCallsThatBlock) {
  const ncclUniqueId id = make_id();
  EXPECT_EQ(init(id, 2, 2), ncclInvalidArgument);
  EXPECT_EQ(init(id, 2, -1), ncclInvalidArgument);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(calls_->init(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
}

TEST_F(FakeNcclTest, RefusesPeersAndRootsThatTheCommunicatorDoesNotHave) {
  init_all(2);
  std::vector<int> values{1};
  for (const int none : {-1, 2}) {
    EXPECT_EQ(send(ranks_[0], values, none), ncclInvalidArgument);
    EXPECT_EQ(receive(ranks_[0], values, none), ncclInvalidArgument);
    EXPECT_EQ(calls_->broadcast(values.data(), values.data(), 1, ncclInt32, none, ranks_[0].comm,
                                ranks_[0].stream()),
              ncclInvalidArgument);
    EXPECT_EQ(calls_->reduce(values.data(), values.data(), 1, ncclInt32, ncclSum, none,
                             ranks_[0].comm, ranks_[0].stream()),
              ncclInvalidArgument);
  }
  // Nor has a group that has such a call anything for the stream.
  EXPECT_EQ(calls_->group_start(), ncclSuccess);
  EXPECT_EQ(send(ranks_[0], values, 1), ncclSuccess);
  EXPECT_EQ(send(ranks_[0], values, 2), ncclInvalidArgument);
  EXPECT_EQ(calls_->group_end(), ncclInvalidArgument);
  EXPECT_TRUE(ends(ranks_[0]));
}

TEST_F(FakeNcclTest, RefusesOperationsThatTheCommunicatorDoesNotHave) {
  init_all(1);
  const ncclUniqueId other = make_id();
  EXPECT_EQ(init(other, 1, 0), ncclInProgress);
  EXPECT_EQ(settle(ranks_[1]), ncclSuccess);
  float factor = 0.5F;
  ncclRedOp_t op = ncclSum;
  ASSERT_EQ(calls_->create_pre_mul_sum(&op, &factor, ncclFloat32, ncclScalarHostImmediate,
                                       ranks_[0].comm),
            ncclSuccess);
  // Each has made one.
  ncclRedOp_t of_other = ncclSum;
  ASSERT_EQ(calls_->create_pre_mul_sum(&of_other, &factor, ncclFloat32, ncclScalarHostImmediate,
                                       ranks_[1].comm),
            ncclSuccess);
  std::vector<float> values{8};
  EXPECT_EQ(sum(ranks_[1], values, ncclFloat32, op), ncclInvalidArgument) << "another's";
  EXPECT_EQ(calls_->destroy_op(op, ranks_[1].comm), ncclInvalidArgument) << "another's";
  EXPECT_EQ(calls_->destroy_op(ncclSum, ranks_[0].comm), ncclInvalidArgument) << "NCCL's own";
  EXPECT_EQ(sum(ranks_[0], values, ncclFloat32, op), ncclInProgress);
  EXPECT_EQ(settle(ranks_[0]), ncclSuccess);
  EXPECT_EQ(calls_->destroy_op(op, ranks_[0].comm), ncclSuccess);
  EXPECT_TRUE(ends(ranks_[0]));
  EXPECT_EQ(values.front(), 4);
  EXPECT_EQ(calls_->destroy_op(op, ranks_[0].comm), ncclInvalidArgument) << "destroyed before";
  EXPECT_EQ(sum(ranks_[0], values, ncclFloat32, op), ncclInvalidArgument) << "destroyed before";
}

TEST_F(FakeNcclTest, RefusesCallsOfOneGroupOnTwoStreams) {
  init_all(1);
  const auto other = CopyLane::create({MemorySpace::kCuda, 0}).value();
  std::vector<int> values{1};
  EXPECT_EQ(calls_->group_start(), ncclSuccess);
  EXPECT_EQ(sum(ranks_[0], values, ncclInt32), ncclSuccess);
  EXPECT_EQ(calls_->all_reduce(values.data(), values.data(), 1, ncclInt32, ncclSum, ranks_[0].comm,
                               static_cast<cudaStream_t>(other->to_device().native)),
            ncclInvalidUsage);
  EXPECT_EQ(calls_->group_end(), ncclInProgress);  // of what was not refused
  EXPECT_EQ(settle(ranks_[0]), ncclSuccess);
  EXPECT_TRUE(ends(ranks_[0]));
}

TEST_F(FakeNcclTest, AMessageOfAnotherLengthIsAnErrorOfWhoReceivesIt) {
  init_all(2);
  const std::vector<int> two{1, 2};
  std::vector<int> one{0};
  ASSERT_EQ(send(ranks_[0], two, 1), ncclInProgress);
  ASSERT_EQ(receive(ranks_[1], one, 0), ncclInProgress);
  for (const Rank& rank : ranks_) ASSERT_EQ(settle(rank), ncclSuccess);
  EXPECT_TRUE(ends(ranks_[1]));
  EXPECT_EQ(look(ranks_[1]), ncclInvalidUsage);
}

TEST_F(FakeNcclTest, ACommunicatorIsReadyWhenAllItsRanksHaveCome) {
  const ncclUniqueId id = make_id();
  ASSERT_EQ(init(id, 2, 0), ncclInProgress);
  EXPECT_EQ(settle(ranks_[0], 0.05), ncclInProgress);
  EXPECT_EQ(init(id, 2, 0), ncclInvalidArgument);  // there already
  EXPECT_EQ(init(id, 3, 1), ncclInvalidArgument);  // of another size
  ASSERT_EQ(init(id, 2, 1), ncclInProgress);
  for (const Rank& rank : ranks_) EXPECT_EQ(settle(rank), ncclSuccess);
}

TEST_F(FakeNcclTest, AWorkIsOnItsStreamWhenItsCallIsThroughAndDoneInItsOrder) {
  init_all(1);
  const Rank& rank = ranks_[0];
  const std::vector<int> from{5};
  std::vector<int> to{0};
  ASSERT_EQ(
      calls_->all_reduce(from.data(), to.data(), 1, ncclInt32, ncclSum, rank.comm, rank.stream()),
      ncclInProgress);
  EXPECT_TRUE(ends(rank));
  EXPECT_THAT(to, ElementsAre(0));
  emulation::hold(rank.stream());
  ASSERT_EQ(settle(rank), ncclSuccess);
  EXPECT_TRUE(stays(rank));
  EXPECT_THAT(to, ElementsAre(0));
  emulation::release(rank.stream());
  EXPECT_TRUE(ends(rank));
  EXPECT_THAT(to, ElementsAre(5));
}

TEST_F(FakeNcclTest, ASendEndsWhenItIsReceived) {
  init_all(2);
  const std::vector<int> sent{7, 8};
  std::vector<int> received(2);
  ASSERT_EQ(send(ranks_[0], sent, 1), ncclInProgress);
  ASSERT_EQ(settle(ranks_[0]), ncclSuccess);
  EXPECT_TRUE(stays(ranks_[0]));
  ASSERT_EQ(receive(ranks_[1], received, 0), ncclInProgress);
  ASSERT_EQ(settle(ranks_[1]), ncclSuccess);
  for (const Rank& rank : ranks_) EXPECT_TRUE(ends(rank));
  EXPECT_EQ(received, sent);
}

// Which in one group do not wait for each other.
TEST_F(FakeNcclTest, SendsThatWaitForEachOtherEndByAbortAlone) {
  init_all(2);
  const std::vector<int> sent{7};
  std::vector<int> received(1);
  for (const int rank : {0, 1}) {
    const Rank& own = ranks_[static_cast<std::size_t>(rank)];
    ASSERT_EQ(send(own, sent, 1 - rank), ncclInProgress);
    ASSERT_EQ(settle(own), ncclSuccess);
    ASSERT_EQ(receive(own, received, 1 - rank), ncclInProgress);
    ASSERT_EQ(settle(own), ncclSuccess);
  }
  EXPECT_TRUE(stays(ranks_[0]));
  abort(ranks_[0]);
  EXPECT_TRUE(ends(ranks_[0]));
  EXPECT_TRUE(stays(ranks_[1]));  // nobody has told it
  abort(ranks_[1]);
  EXPECT_TRUE(ends(ranks_[1]));
}

TEST_F(FakeNcclTest, AnAbortEndsACollectiveThatOthersDoNotComeTo) {
  init_all(2);
  std::vector<int> values{1};
  ASSERT_EQ(sum(ranks_[0], values, ncclInt32), ncclInProgress);
  ASSERT_EQ(settle(ranks_[0]), ncclSuccess);
  EXPECT_TRUE(stays(ranks_[0]));
  abort(ranks_[0]);
  EXPECT_TRUE(ends(ranks_[0]));
  ASSERT_EQ(sum(ranks_[1], values, ncclInt32), ncclInProgress);
  ASSERT_EQ(settle(ranks_[1]), ncclSuccess);
  EXPECT_TRUE(stays(ranks_[1]));  // it does not meet who has gone
}

TEST_F(FakeNcclTest, RefusesSeveralRanksOnOneDeviceUnlessItMayShare) {
  const auto outcome = [&](int version, const char* may_share, int devices) {
    fake_.be(version);
    ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", may_share, 1);
    const ncclUniqueId id = make_id();
    std::vector<ncclResult_t> outcomes;
    for (const int rank : {0, 1}) EXPECT_EQ(init(id, 2, rank, rank % devices), ncclInProgress);
    for (Rank& rank : ranks_) {
      outcomes.push_back(settle(rank));
      abort(rank);
    }
    ranks_.clear();
    return outcomes;
  };
  emulation::play_devices(2);
  EXPECT_THAT(outcome(22105, "1", 1), Each(ncclInvalidUsage));
  EXPECT_THAT(outcome(23003, "0", 1), Each(ncclInvalidUsage));
  EXPECT_THAT(outcome(23003, "1", 1), Each(ncclSuccess));
  EXPECT_THAT(outcome(22105, "0", 2), Each(ncclSuccess));
  emulation::play_devices(1);
}

TEST_F(FakeNcclTest, RefusesAStreamOfAnotherDevice) {
  emulation::play_devices(2);
  const ncclUniqueId id = make_id();
  for (const int rank : {0, 1}) ASSERT_EQ(init(id, 2, rank, rank), ncclInProgress);
  for (const Rank& rank : ranks_) ASSERT_EQ(settle(rank), ncclSuccess);
  std::vector<int> values{1};
  EXPECT_EQ(calls_->all_reduce(values.data(), values.data(), 1, ncclInt32, ncclSum, ranks_[0].comm,
                               ranks_[1].stream()),
            ncclInvalidArgument);
  emulation::play_devices(1);
}

TEST_F(FakeNcclTest, AnErrorIsOneCommunicators) {
  init_all(2);
  fake_.fail("rank 1", ncclRemoteError);
  EXPECT_EQ(look(ranks_[0]), ncclSuccess);
  EXPECT_EQ(look(ranks_[1]), ncclRemoteError);
}

TEST_F(FakeNcclTest, RefusesCallsAfterAnError) {
  init_all(2);
  std::vector<int> values{1};
  std::vector<int> longer{1, 2};
  ASSERT_EQ(sum(ranks_[0], longer, ncclInt32), ncclInProgress);
  ASSERT_EQ(sum(ranks_[1], values, ncclInt32), ncclInProgress);
  for (const Rank& rank : ranks_) ASSERT_EQ(settle(rank), ncclSuccess);
  for (const Rank& rank : ranks_) ASSERT_TRUE(ends(rank));
  int size = 0;
  ncclComm_t part = nullptr;
  EXPECT_EQ(sum(ranks_[1], values, ncclInt32), ncclInvalidUsage);
  EXPECT_EQ(send(ranks_[1], values, 0), ncclInvalidUsage);
  EXPECT_EQ(calls_->split(ranks_[1].comm, 0, 0, &part, nullptr), ncclInvalidUsage);
  EXPECT_EQ(calls_->count(ranks_[1].comm, &size), ncclInvalidUsage);
  EXPECT_EQ(calls_->user_rank(ranks_[1].comm, &size), ncclInvalidUsage);
  EXPECT_EQ(scaled_sum(ranks_[1]), ncclInvalidUsage);
  EXPECT_EQ(calls_->finalize(ranks_[1].comm), ncclInvalidUsage);
}

TEST_F(FakeNcclTest, CallsThatDifferAreAnErrorOfAll) {
  init_all(2);
  std::vector<int> one{1};
  std::vector<int> two{1, 2};
  ASSERT_EQ(sum(ranks_[0], one, ncclInt32), ncclInProgress);
  ASSERT_EQ(sum(ranks_[1], two, ncclInt32), ncclInProgress);
  for (const Rank& rank : ranks_) ASSERT_EQ(settle(rank), ncclSuccess);
  for (const Rank& rank : ranks_) EXPECT_TRUE(ends(rank));
  for (const Rank& rank : ranks_) EXPECT_EQ(look(rank), ncclInvalidUsage);
}

// What fails in a group keeps all of it from being done.
TEST_F(FakeNcclTest, AGroupIsDoneAsAWholeOrNotAtAll) {
  init_all(1);
  std::vector<int> values{4};
  fake_.fail("ncclSend", ncclSystemError);
  EXPECT_EQ(calls_->group_start(), ncclSuccess);
  EXPECT_EQ(sum(ranks_[0], values, ncclInt32, ncclProd), ncclSuccess);
  EXPECT_EQ(send(ranks_[0], values, 0), ncclSystemError);
  EXPECT_EQ(calls_->group_end(), ncclSystemError);
  fake_.fail("ncclSend", -1);
  EXPECT_EQ(calls_->group_end(), ncclInvalidUsage);  // none was begun
  EXPECT_EQ(look(ranks_[0]), ncclSuccess);
}

// Rank r's part of an all-reduce begins at the rank behind it.
TEST_F(FakeNcclTest, SumsGoRoundTheRing) {
  init_all(3);
  std::vector<std::vector<float>> values{{1e8F, 1e8F, 1e8F}, {1, 1, 1}, {-1e8F, -1e8F, -1e8F}};
  reduce_all(values, ncclFloat32);
  EXPECT_THAT(values, Each(ElementsAre(0, 1, 0)));
}

TEST_F(FakeNcclTest, EveryStepIsRoundedToTheType) {
  init_all(3);
  const auto half = [](float value) { return fp16_from_float(value); };
  std::vector<std::vector<std::uint16_t>> values(3, std::vector<std::uint16_t>(3, half(1)));
  values[0].assign(3, half(2048));
  reduce_all(values, ncclFloat16);
  EXPECT_THAT(values, Each(ElementsAre(half(2050), half(2048), half(2048))));
  std::vector<std::vector<std::int8_t>> bytes(3, {100});
  reduce_all(bytes, ncclInt8);
  EXPECT_THAT(bytes, Each(ElementsAre(44)));
}

// The sum would be infinite.
TEST_F(FakeNcclTest, MeansAreScaledBeforeTheyAreAdded) {
  init_all(2);
  const std::uint16_t large = fp16_from_float(60000);
  std::vector<std::vector<std::uint16_t>> values(2, {large});
  reduce_all(values, ncclFloat16, ncclAvg);
  EXPECT_THAT(values, Each(ElementsAre(large)));
}

TEST_F(FakeNcclTest, APartIsThereWhenAllHaveCalledSplit) {
  init_all(2);
  std::vector<ncclComm_t> parts(2);
  ASSERT_EQ(calls_->split(ranks_[0].comm, 0, 1, &parts[0], nullptr), ncclInProgress);
  EXPECT_EQ(settle(ranks_[0], 0.05), ncclInProgress);
  EXPECT_EQ(parts[0], nullptr);
  ASSERT_EQ(calls_->split(ranks_[1].comm, 0, 0, &parts[1], nullptr), ncclInProgress);
  for (const Rank& rank : ranks_) EXPECT_EQ(settle(rank), ncclSuccess);
  std::vector<int> found;
  for (const ncclComm_t part : parts) {
    ASSERT_NE(part, nullptr);
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) ASSERT_EQ(calls_->async_error(part, &state), ncclSuccess);
    int rank = -1;
    EXPECT_EQ(calls_->user_rank(part, &rank), ncclSuccess);
    found.push_back(rank);
    calls_->abort(part);
  }
  EXPECT_THAT(found, ElementsAre(1, 0));
}

}  // namespace
}  // namespace gradwire::fake_nccl_test
