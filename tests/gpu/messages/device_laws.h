// The laws of Communicator over messages with every tensor on a device: on the one that the host
// plays, whose streams run later than they are told, and on a card. A transport gets them by one
// line in a file of its own:
//   INSTANTIATE_TEST_SUITE_P(Name, DeviceLaws, device_jobs("name"), device_job_name);
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace gradwire {

struct DeviceJob {
  std::string backend;  // "inproc": ranks as threads; else processes
  int ranks = 1;
  bool direct = false;  // the transport takes the device's memory, as it says
};

class DeviceLaws : public testing::TestWithParam<DeviceJob> {};

inline auto device_jobs(const std::string& backend, bool direct = false) {
  return testing::Values(DeviceJob{backend, 1, direct}, DeviceJob{backend, 2, direct},
                         DeviceJob{backend, 3, direct}, DeviceJob{backend, 4, direct});
}
inline std::string device_job_name(const testing::TestParamInfo<DeviceJob>& info) {
  return std::to_string(info.param.ranks) + "_ranks";
}

}  // namespace gradwire
