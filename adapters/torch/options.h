// What a user may choose for a group.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace gradwire::torch_backend {

// gradwire.torch.Options: given as pg_options. Equal on all ranks of the group.
struct GroupOptions final : c10d::Backend::Options {
  GroupOptions() : c10d::Backend::Options("gradwire") {}

  bool blocking = false;  // operations are complete when the call that starts them returns
  double liveness = 0;    // seconds; 0: GRADWIRE_DEADLINE, else 15
  double rendezvous = 0;  // seconds to wait for the slowest rank; 0: the group's timeout
  std::string transport;  // these four: empty means gradwire's default
  std::string interface_name;
  std::string algorithm;
  std::string links;
};

}  // namespace gradwire::torch_backend
