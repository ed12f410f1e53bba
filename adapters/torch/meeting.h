// How a group's ranks meet through its c10d Store.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "adapters/torch/options.h"
#include "gradwire/c.h"

namespace gradwire::torch_backend {

// Freed with the last owner, so that no thread loses it in the middle of a call.
using Comm = std::shared_ptr<gw_comm>;

// Collective over the `size` ranks that use this store with this purpose. A store may serve the
// same purpose again, as when a job destroys its groups and makes new ones on one store: ranks
// count their own uses in it. Raises DistBackendError.
Comm meet(const c10::intrusive_ptr<c10d::Store>& store, const std::string& purpose, int rank,
          int size, const GroupOptions& options, std::chrono::milliseconds timeout);

}  // namespace gradwire::torch_backend
