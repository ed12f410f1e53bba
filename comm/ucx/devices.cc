#include "comm/ucx/devices.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "comm/tcp/interfaces.h"

namespace gradwire::ucx {
namespace {

namespace fs = std::filesystem;

// A bridge all of whose ports are virtual: containers and virtual machines, no other host.
bool is_inner_bridge(const std::string& name) {
  std::error_code none;
  for (const auto& port : fs::directory_iterator("/sys/class/net/" + name + "/brif", none)) {
    if (fs::exists("/sys/class/net/" + port.path().filename().string() + "/device", none))
      return false;
  }
  return true;
}

void add_rdma_ports(std::vector<Device>& all) {
  std::error_code none;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", none)) {
    for (const auto& port : fs::directory_iterator(device.path() / "ports", none)) {
      std::string state;  // "4: ACTIVE"
      std::ifstream file(port.path() / "state");
      std::getline(file, state);
      all.push_back({device.path().filename().string() + ":" + port.path().filename().string(),
                     Device::Kind::kRdma,
                     state.find("ACTIVE") != std::string::npos,
                     {}});
    }
  }
}

std::string usable_names(const std::vector<Device>& present) {
  std::vector<std::string> names;
  for (const Device& one : present) {
    if (one.up) names.push_back(one.name);
  }
  return names.empty() ? "none is up" : joined(names);
}

Result<DeviceChoice> choose_by_name(const std::vector<Device>& present, std::string_view wanted) {
  DeviceChoice choice;
  choice.restricted = true;
  for (std::string_view rest = wanted; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::string name(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const auto found = std::ranges::find(present, name, &Device::name);
    if (found == present.end() || !found->up) {
      return Status(
          Code::kInvalidArgument,
          format("network interface '%s' is %s (usable here: %s)", name.c_str(),
                 found == present.end() ? "not there" : "down", usable_names(present).c_str()));
    }
    if (std::ranges::find(choice.taken, name) == choice.taken.end()) choice.taken.push_back(name);
  }
  for (const Device& one : present) {
    if (std::ranges::find(choice.taken, one.name) == choice.taken.end())
      choice.left.push_back({one.name, "not selected"});
  }
  return choice;
}

}  // namespace

std::vector<Device> list_devices() {
  std::vector<Device> all;
  for (const tcp::Interface& interface : tcp::list_interfaces()) {
    auto one = std::ranges::find(all, interface.name, &Device::name);
    if (one == all.end()) {
      Device::Kind kind = Device::Kind::kNetwork;
      if (interface.loopback) kind = Device::Kind::kLoopback;
      if (interface.bridge && is_inner_bridge(interface.name)) kind = Device::Kind::kBridge;
      one = all.insert(all.end(), Device{interface.name, kind, interface.up, {}});
    }
    one->addresses.push_back(interface.address);
  }
  add_rdma_ports(all);
  return all;
}

Result<DeviceChoice> choose_devices(const std::vector<Device>& present, std::string_view wanted) {
  if (!wanted.empty()) return choose_by_name(present, wanted);
  DeviceChoice choice;
  std::vector<std::string> bridges;
  bool reaches_others = false;
  for (const Device& one : present) {
    if (!one.up) {
      choice.left.push_back({one.name, "down"});
    } else if (one.kind == Device::Kind::kBridge) {
      bridges.push_back(one.name);
    } else {
      choice.taken.push_back(one.name);
      reaches_others = reaches_others || one.kind != Device::Kind::kLoopback;
    }
  }
  for (const std::string& name : bridges) {  // with nothing else, a bridge it is
    if (reaches_others) {
      choice.left.push_back({name, "a bridge of this host"});
    } else {
      choice.taken.push_back(name);
    }
  }
  choice.restricted = reaches_others && !bridges.empty();
  return choice;
}

}  // namespace gradwire::ucx
