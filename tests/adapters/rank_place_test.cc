// What names of devices and transports come to on a rank, over the devices that the host plays.
#include "adapters/launch/rank_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "comm/nccl/have_nccl.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/fails.h"

namespace gradwire::launch {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

constexpr int kDevices = 3;

class RankPlaces : public testing::Test {
 protected:
  RankPlaces() { emulation::play_devices(kDevices); }
  ~RankPlaces() override { emulation::play_devices(1); }
};

// "cuda:1 over tcp".
Result<std::string> placed(const std::string& device, const std::string& transport,
                           int local_rank) {
  GW_ASSIGN(const auto name, parse_device(device));
  GW_ASSIGN(const auto place, place_rank(name, transport, local_rank));
  return to_string(place.device) + " over " + place.transport;
}
std::string place(const std::string& device, const std::string& transport, int local_rank) {
  const auto found = placed(device, transport, local_rank);
  return found.has_value() ? found.value() : std::string(found.error().message());
}
Status refusal(const std::string& device, const std::string& transport, int local_rank) {
  const auto found = placed(device, transport, local_rank);
  return found.has_value() ? Status() : found.error();
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
  EXPECT_THAT(refusal("cuda", "tcp", 1),
              fails(Code::kUnsupported, "device cuda", "cudaErrorNoDevice"));
}

TEST_F(RankPlaces, BadNamesAreNamed) {
  for (const char* const name : {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda1", "cuda:1024"}) {
    EXPECT_THAT(refusal(name, "tcp", 0),
                fails(kInvalid, "device", "'" + std::string(name) + "'", "cpu", "cuda:N"));
  }
  EXPECT_THAT(refusal("cuda:3", "tcp", 0), fails(kInvalid, "device cuda", "device 3", "0", "2"));
}

TEST_F(RankPlaces, NcclBringsTheDeviceThatTensorsAreOn) {
  if constexpr (kHaveNccl) {
    EXPECT_EQ(place("cuda", "nccl", 4), "cuda:1 over nccl:1");
    EXPECT_EQ(place("cuda:2", "nccl", 1), "cuda:2 over nccl:2");
    EXPECT_EQ(place("cuda", "nccl:2", 1), "cuda:2 over nccl:2");
    EXPECT_EQ(place("cuda:2", "nccl:2", 1), "cuda:2 over nccl:2");
    EXPECT_EQ(place("cpu", "nccl", 1), "cpu over nccl:1");
    EXPECT_THAT(refusal("cuda:1", "nccl:2", 1),
                fails(kInvalid, "device cuda:1", "transport nccl:2", "nccl:1"));
    EXPECT_THAT(refusal("cpu", "nccl:3", 0),
                fails(kInvalid, "transport nccl", "device 3", "0", "2"));
    EXPECT_THAT(refusal("cuda", "nccl:x", 0), fails(kInvalid, "nccl:x"));
  } else {
    EXPECT_THAT(refusal("cuda", "nccl", 1), fails(Code::kUnsupported, "NCCL"));
  }
}

}  // namespace
}  // namespace gradwire::launch
