// Opening NCCL, and what becomes of its errors: with libraries that the build made for it, and with
// the real one where this build has found it.
#include "comm/nccl/nccl_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "comm/nccl/have_nccl.h"
#include "comm/nccl/nccl_comm.h"
#include "tests/support/fails.h"

namespace gradwire {
namespace {

using nccl::open_calls;

TEST(NcclCalls, AMissingLibraryIsNamedWithItsReason) {
  const auto calls = open_calls({"libnone-such.so.2", "/nowhere/libnccl.so.2"});
  ASSERT_FALSE(calls.has_value());
  EXPECT_THAT(calls.error(),
              fails(Code::kUnsupported, "NCCL", "libnone-such.so.2", "/nowhere/libnccl.so.2"));
}

TEST(NcclCalls, AnOldLibraryIsRefusedAndTheNextIsTaken) {
  const auto old = open_calls({GW_OLD_NCCL});
  ASSERT_FALSE(old.has_value());
  EXPECT_THAT(old.error(), fails(Code::kUnsupported, "NCCL", GW_OLD_NCCL, "2.18.5", "2.19"));
  const auto next = open_calls({GW_OLD_NCCL, GW_FAKE_NCCL});
  ASSERT_TRUE(next.has_value()) << next.error().message();
  EXPECT_EQ(next.value()->library, GW_FAKE_NCCL);
  EXPECT_EQ(next.value()->version, 23003);
}

TEST(NcclCalls, AMissingCallIsNamed) {
  const auto calls = open_calls({GW_BARE_NCCL});
  ASSERT_FALSE(calls.has_value());
  EXPECT_THAT(calls.error(), fails(Code::kUnsupported, "NCCL", GW_BARE_NCCL, "ncclGetLastError"));
}

TEST(NcclCalls, VersionsAreReadAsNcclWritesThem) {
  EXPECT_EQ(nccl::version_text(23203), "2.32.3");
  EXPECT_EQ(nccl::version_text(21900), "2.19.0");
}

// The numbers that nccl.h gives, written out.
TEST(NcclCalls, TypesAndOperationsHaveNcclsNumbers) {
  const std::pair<DType, int> types[] = {{DType::kI8, 0},  {DType::kU8, 1},  {DType::kI32, 2},
                                         {DType::kI64, 4}, {DType::kF16, 6}, {DType::kF32, 7},
                                         {DType::kF64, 8}, {DType::kBF16, 9}};
  for (const auto& [dtype, number] : types) {
    EXPECT_EQ(nccl::data_type_of(dtype), number) << to_string(dtype);
  }
  const std::pair<ReduceOp, int> ops[] = {{ReduceOp::kSum, 0},  {ReduceOp::kProduct, 1},
                                          {ReduceOp::kMax, 2},  {ReduceOp::kMin, 3},
                                          {ReduceOp::kMean, 4}, {ReduceOp::kPreMulSum, 0}};
  for (const auto& [op, number] : ops) EXPECT_EQ(nccl::op_of(op), number) << to_string(op);
}

TEST(NcclCalls, ErrorsNameTheCall) {
  const auto calls = open_calls({GW_FAKE_NCCL});
  ASSERT_TRUE(calls.has_value());
  const auto error = [&](ncclResult_t result) {
    return nccl::status_of(*calls.value(), result, "ncclSend", nullptr);
  };
  EXPECT_TRUE(error(ncclSuccess).ok());
  EXPECT_TRUE(error(ncclInProgress).ok());
  EXPECT_EQ(error(ncclRemoteError).code(), Code::kPeerLost);
  EXPECT_EQ(error(ncclInvalidUsage).code(), Code::kInvalidArgument);
  EXPECT_THAT(error(ncclSystemError), fails(Code::kInternal, "result 2", "ncclSend"));
}

// The library that the build has found, as on a machine without devices.
class RealNccl : public testing::Test {
 protected:
  // CUDA reads it when it is used for the first time, which nothing before has done.
  static void SetUpTestSuite() { setenv("CUDA_VISIBLE_DEVICES", "-1", 1); }
  void SetUp() override {
#ifdef GW_NO_NCCL
    GTEST_SKIP() << "this build has found no NCCL";
#endif
    auto opened = open_calls(nccl_places());
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    calls_ = std::move(opened).value();
  }

  std::shared_ptr<const nccl::Calls> calls_;
};

TEST_F(RealNccl, OpensAndSaysItsVersion) {
  EXPECT_GE(calls_->version, nccl::kOldestVersion);
  EXPECT_LT(calls_->version, 40000);
  const Status error = nccl::status_of(*calls_, ncclInvalidArgument, "ncclReduce", nullptr);
  EXPECT_THAT(error, fails(Code::kInvalidArgument, "invalid argument", "ncclReduce"));  // NCCL's
}

TEST_F(RealNccl, WithoutADeviceACommunicatorIsRefusedByName) {
  const auto before = std::chrono::steady_clock::now();
  const auto made = NcclComm::create(calls_, {.id = {}}, deadline_in(30));
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), Code::kUnsupported);
  // Whichever CUDA gives: names end where they do in its headers.
  EXPECT_NE(made.error().message().find("cudaError"), std::string_view::npos)
      << made.error().message();
  EXPECT_TRUE(names(made.error().message(), "cudaGetDevice")) << made.error().message();
  EXPECT_LT(std::chrono::steady_clock::now(), before + std::chrono::seconds(30));
}

// What NCCL itself says where gradwire's own look at the device is left out.
TEST_F(RealNccl, ItsOwnRefusalBecomesAStatus) {
  ncclUniqueId id;
  std::memset(&id, 1, sizeof id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t result = calls_->init(&comm, 1, id, 0, &config);
  const Status status = nccl::status_of(*calls_, result, "ncclCommInitRankConfig", comm);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("cuda"), std::string_view::npos) << status.message();
  EXPECT_TRUE(names(status.message(), "ncclCommInitRankConfig")) << status.message();
}

}  // namespace
}  // namespace gradwire
