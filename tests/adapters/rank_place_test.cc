// What names of devices and transports come to on a rank, over the devices that the host plays.
#include "adapters/launch/rank_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "comm/nccl/have_nccl.h"
#include "tests/emulation/emulated_device.h"

namespace gradwire::launch {
namespace {

constexpr int kDevices = 3;

class RankPlaces : public testing::Test {
 protected:
  RankPlaces() { emulation::play_devices(kDevices); }
  ~RankPlaces() override { emulation::play_devices(1); }
};

// "cuda:1 over tcp", or the error's text.
std::string place(const std::string& device, const std::string& transport, int local_rank) {
  const auto name = parse_device(device);
  if (!name.has_value()) return std::string(name.error().message());
  const auto placed = place_rank(name.value(), transport, local_rank);
  if (!placed.has_value()) return std::string(placed.error().message());
  return to_string(placed.value().device) + " over " + placed.value().transport;
}

TEST_F(RankPlaces, ADeviceWithoutANumberIsThatOfTheLocalRank) {
  EXPECT_EQ(place("cuda", "tcp", 0), "cuda:0 over tcp");
  EXPECT_EQ(place("cuda", "tcp", 2), "cuda:2 over tcp");
  EXPECT_EQ(place("cuda", "auto", 4), "cuda:1 over auto");
  EXPECT_EQ(place("cuda:2", "", 1), "cuda:2 over ");
}

TEST_F(RankPlaces, TheHostNeedsNoDevice) {
  emulation::play_devices(0);
  EXPECT_EQ(place("cpu", "tcp", 1), "cpu over tcp");
  EXPECT_THAT(place("cuda", "tcp", 1), testing::StartsWith("device cuda: cudaErrorNoDevice"));
}

TEST_F(RankPlaces, BadNamesAreNamed) {
  for (const char* const name : {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda1", "cuda:1024"}) {
    EXPECT_EQ(place(name, "tcp", 0),
              "device '" + std::string(name) + "'; cpu, cuda or cuda:N, N from 0 on, wanted");
  }
  EXPECT_EQ(place("cuda:3", "tcp", 0), "device cuda: CUDA device 3 (0 to 2 wanted: 3 are here)");
}

TEST_F(RankPlaces, NcclBringsTheDeviceThatTensorsAreOn) {
  if constexpr (kHaveNccl) {
    EXPECT_EQ(place("cuda", "nccl", 4), "cuda:1 over nccl:1");
    EXPECT_EQ(place("cuda:2", "nccl", 1), "cuda:2 over nccl:2");
    EXPECT_EQ(place("cuda", "nccl:2", 1), "cuda:2 over nccl:2");
    EXPECT_EQ(place("cuda:2", "nccl:2", 1), "cuda:2 over nccl:2");
    EXPECT_EQ(place("cpu", "nccl", 1), "cpu over nccl:1");
    EXPECT_EQ(place("cuda:1", "nccl:2", 1),
              "device cuda:1 with transport nccl:2 (nccl or nccl:1 wanted)");
    EXPECT_EQ(place("cpu", "nccl:3", 0),
              "transport nccl: CUDA device 3 (0 to 2 wanted: 3 are here)");
    EXPECT_THAT(place("cuda", "nccl:x", 0), testing::HasSubstr("'nccl:x'"));
  } else {
    EXPECT_THAT(place("cuda", "nccl", 1), testing::HasSubstr("no NCCL in this build"));
  }
}

}  // namespace
}  // namespace gradwire::launch
