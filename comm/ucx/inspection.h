// What UCX finds on this machine and what gradwire told it, for `gradwire doctor`. No UCX types.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire::ucx {

struct Inspection {
  std::string header_version = {};   // "1.13": compiled against
  std::string running_version = {};  // "1.13.1"
  struct Transport {
    std::string name;    // "tcp", "sysv", "rc_mlx5"
    std::string device;  // "eth0", "memory"
    std::string kind;    // "network", "shared memory", "accelerator", "self"
  };
  std::vector<Transport> transports = {};  // all that are there, whether or not UCX_TLS lets them
  std::vector<std::string> memory_types = {};  // "host", "cuda", as UCX names them
  bool cuda_direct = false;                    // tensors on devices are UCX's, else they are staged
  std::string cuda_why = {};
  struct Setting {
    std::string variable, value, source, why;  // as in settings.h
  };
  std::vector<Setting> settings = {};
  struct Device {
    std::string name, reason;  // why it is not taken; "" for those that are
  };
  std::vector<Device> devices = {};
};

// Opens UCX and closes it again. interfaces: as UcxOptions::interfaces. kUnsupported in a build
// without UCX; errors of settings as they are.
Result<Inspection> inspect(const std::string& interfaces);

}  // namespace gradwire::ucx
