// The laws of Communicator over NCCL on one card: alone, and with the argument "sharing" as two and
// as four processes that share it. Without a card, or with an NCCL that shares none, it is skipped
// (77) before any test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "comm/nccl/have_nccl.h"
#include "comm/nccl/nccl_calls.h"
#include "tests/gpu/card.h"
#include "tests/gpu/nccl/capture.h"
#include "tests/gpu/nccl/staged_communicator.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/process_ranks.h"

namespace gradwire {
namespace {

constexpr Device kCard{MemorySpace::kCuda, 0};
constexpr int kSharesCards = 23000;  // 2.30.0

class NcclLawsOnGpu : public ::testing::TestWithParam<int> {};

TEST_P(NcclLawsOnGpu, Hold) {
  const auto outcomes = on_processes(
      GetParam(), {.deadline_seconds = 60}, 240,
      [](std::unique_ptr<Communicator> world) {
        gpu::StagedCommunicator staged(std::move(world), kCard);
        return gpu::run_device_laws(staged);
      },
      {}, "nccl:0");
  EXPECT_THAT(outcomes, ended_cleanly(GetParam()));
}

// CUDA graphs of exchanges.
TEST_P(NcclLawsOnGpu, HoldWhereTheyAreCaptured) {
  const auto outcomes = on_processes(
      GetParam(), {.deadline_seconds = 60}, 240,
      [](std::unique_ptr<Communicator> world) {
        std::string faults = gpu::check_captured_sums(*world);
        faults += gpu::check_captured_maxima(*world);
        faults += gpu::check_captured_payloads(*world);
        return faults + gpu::check_what_no_graph_takes(*world);
      },
      {}, "nccl:0");
  EXPECT_THAT(outcomes, ended_cleanly(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Alone, NcclLawsOnGpu, ::testing::Values(1));
INSTANTIATE_TEST_SUITE_P(Sharing, NcclLawsOnGpu, ::testing::Values(2, 4));

// Why nothing can be tested; empty if it can. An NCCL that does not open is for the tests to say.
std::string missing(bool sharing) {
  if (std::string why = gpu::missing(gpu::has_card); !why.empty()) return why;
  const auto calls = nccl::open_calls(nccl_places());
  if (!sharing || !calls.has_value() || calls.value()->version >= kSharesCards) return "";
  return "NCCL " + nccl::version_text(calls.value()->version) +
         " (2.30 or newer wanted for several ranks on one card)";
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const bool sharing = argc > 1 && std::string_view(argv[1]) == "sharing";
  if (const std::string why = gradwire::missing(sharing); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  GTEST_FLAG_SET(filter, sharing ? "Sharing/*" : "-Sharing/*");
  return RUN_ALL_TESTS();
}
