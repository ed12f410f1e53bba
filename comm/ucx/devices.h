// The network devices of this machine, and which of them UCX gets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"

namespace gradwire::ucx {

struct Device {
  enum class Kind : unsigned char {
    kNetwork,
    kLoopback,
    kBridge,  // of containers or virtual machines of this host: no other host can be reached there
    kRdma,    // a port of an RDMA device
  };
  std::string name;  // as UCX has it: "eth0", "mlx5_0:1"
  Kind kind = Kind::kNetwork;
  bool up = false;                     // administratively, and with a carrier
  std::vector<std::string> addresses;  // as text; RDMA ports are listed without
};

// As the kernel tells now: interfaces with an address, then RDMA ports. A bridge with a physical
// port is no kBridge: it is how its host reaches the network.
std::vector<Device> list_devices();

struct DeviceChoice {
  struct Left {
    std::string name;
    std::string reason;  // "down", "a bridge of this host", "not selected"
  };
  std::vector<std::string> taken;  // names, in the order of `present` or of the wish
  std::vector<Left> left;
  // Whether something that UCX would take is left out, so that it has to be told.
  bool restricted = false;
};

// wanted: names with commas between ("eth0", "eth0,mlx5_0:1"), all of which are taken, or "" for
// every one that is up, without bridges (with them, should nothing else lead to other hosts).
// kInvalidArgument for a name that is not there or is down; it names those that would do.
Result<DeviceChoice> choose_devices(const std::vector<Device>& present, std::string_view wanted);

}  // namespace gradwire::ucx
