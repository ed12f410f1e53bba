#include "comm/ucx/devices.h"
#include "tests/support/fails.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gradwire::ucx::ucx_devices_test {
namespace {

using Kind = Device::Kind;

const std::vector<Device> kHost = {
    {"lo", Kind::kLoopback, true, {"127.0.0.1", "::1"}},
    {"eth0", Kind::kNetwork, true, {"10.0.0.5"}},
    {"eth1", Kind::kNetwork, true, {"10.1.0.5"}},
    {"eth2", Kind::kNetwork, false, {"10.2.0.5"}},
    {"docker0", Kind::kBridge, true, {"172.17.0.1"}},
    {"mlx5_0:1", Kind::kRdma, true, {}},
    {"mlx5_1:1", Kind::kRdma, false, {}},
};

std::string names(const DeviceChoice& choice) {
  std::string text;
  for (const std::string& name : choice.taken) text += name + " ";
  return text;
}
std::string reason(const DeviceChoice& choice, const std::string& name) {
  const auto found = std::ranges::find(choice.left, name, &DeviceChoice::Left::name);
  return found == choice.left.end() ? "taken" : found->reason;
}

TEST(UcxDevices, BridgesAndWhatIsDownAreLeftOut) {
  const auto choice = choose_devices(kHost, "");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(names(choice.value()), "lo eth0 eth1 mlx5_0:1 ");
  EXPECT_TRUE(choice.value().restricted);
  EXPECT_EQ(reason(choice.value(), "docker0"), "a bridge of this host");
  EXPECT_EQ(reason(choice.value(), "eth2"), "down");
  EXPECT_EQ(reason(choice.value(), "mlx5_1:1"), "down");
}

TEST(UcxDevices, NothingToLeaveOutNothingToSay) {
  const auto choice = choose_devices({kHost[0], kHost[1], kHost[3]}, "");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(names(choice.value()), "lo eth0 ");
  EXPECT_FALSE(choice.value().restricted);  // nobody takes what is down
}

TEST(UcxDevices, ABridgeIsTakenWhereThereIsNothingElse) {
  const auto choice = choose_devices({kHost[0], kHost[4]}, "");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(names(choice.value()), "lo docker0 ");
  EXPECT_FALSE(choice.value().restricted);
}

TEST(UcxDevices, WhatIsAskedForIsTakenInThatOrder) {
  const auto choice = choose_devices(kHost, "mlx5_0:1,docker0,eth1,eth1");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(names(choice.value()), "mlx5_0:1 docker0 eth1 ");
  EXPECT_TRUE(choice.value().restricted);
  EXPECT_EQ(reason(choice.value(), "eth0"), "not selected");
}

TEST(UcxDevices, ABadNameIsRefusedWithTheGoodOnes) {
  for (const auto& [wanted, named] : std::vector<std::pair<std::string, std::string>>{
           {"eth9", "'eth9'"},
           {"eth0,", ""},  // a comma at the end is no name
           {"eth0,,eth1", "''"},
           {"eth2", "'eth2'"}}) {
    const auto choice = choose_devices(kHost, wanted);
    ASSERT_EQ(choice.has_value(), named.empty()) << wanted;
    if (named.empty()) continue;
    EXPECT_THAT(choice.error(),
                fails(Code::kInvalidArgument, named, "lo", "eth0", "eth1", "docker0", "mlx5_0:1"));
  }
  EXPECT_THAT(choose_devices(kHost, "eth2").error(), fails(Code::kInvalidArgument, "down"));
}

TEST(UcxDevices, ThisMachineHasALoopback) {
  const std::vector<Device> here = list_devices();
  const auto loopback = std::ranges::find(here, Kind::kLoopback, &Device::kind);
  ASSERT_NE(loopback, here.end());
  for (const Device& one : here)  // each name once
    EXPECT_EQ(std::ranges::count(here, one.name, &Device::name), 1) << one.name;
}

}  // namespace
}  // namespace gradwire::ucx::ucx_devices_test
