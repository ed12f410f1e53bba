// What carries the messages of an endpoint.
#pragma once

#include <ucp/api/ucp.h>

#include <string>
#include <string_view>
#include <vector>

namespace gradwire::ucx {

struct Lane {
  std::string transport;  // "sysv", "tcp", "rc_mlx5"
  std::string device;     // "memory", "eth0", "mlx5_0:1"
  bool operator==(const Lane&) const = default;
};

// The lanes that UCX took for an endpoint, in its order, each once; empty if it does not say.
std::vector<Lane> lanes_of(ucp_ep_h endpoint);

// The same from the text of ucp_ep_print_info(), which is all that UCX before 1.15 offers.
std::vector<Lane> lanes_in(std::string_view text);

// "sysv+cma", "tcp/eth0+tcp/eth1": devices where they are a network's; "?" for none.
std::string text_of(const std::vector<Lane>& lanes);
// Whether bulk between two processes of one host goes over a network device: peer error handling
// does that to UCX when it is not told otherwise.
bool network_only(const std::vector<Lane>& lanes);

}  // namespace gradwire::ucx
