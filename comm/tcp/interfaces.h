// Which address of this host other ranks should use.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"

namespace gradwire::tcp {

struct Interface {
  std::string name;
  std::string address;  // numeric, IPv4 or global IPv6
  bool up = false;      // and its link too
  bool loopback = false;
  bool bridge = false;
};

// All of this network namespace, in the kernel's order; one entry an address, IPv4 first.
std::vector<Interface> list_interfaces();

// `wanted`: names or addresses of which the first that is there and up is taken ("eth1,10.0.0.7");
// kInvalidArgument, listing what is there, when none is. When `wanted` is empty: the first that is
// up and leads to other hosts as far as its name tells, so no loopback, no bridge and nothing that
// container engines make; an empty address when there is none.
Result<Interface> choose_interface(std::span<const Interface> interfaces, std::string_view wanted);

// The name of the loopback that is up; "" where there is none.
std::string loopback_name();

// "eth0 10.0.0.7, docker0 172.17.0.1 (down)".
std::string describe(std::span<const Interface> interfaces);

}  // namespace gradwire::tcp
