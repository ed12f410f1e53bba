// Ranks as threads over the library that plays NCCL, on the device that the host plays.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/device/nccl_backend.h"
#include "collectives/device/nccl_two_levels.h"
#include "collectives/group_communicator.h"
#include "device/copy_lane.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::gpu {

// A rank's own stream, on which it neither waits for CUDA's default stream nor is waited for: what
// ranks that are threads of one process with one device must have.
class OwnStream {
 public:
  explicit OwnStream(Device device = {MemorySpace::kCuda, 0})
      : lane_(CopyLane::create(device).value()) {}
  Stream stream() const { return lane_->to_device(); }
  OpOptions options() const { return {.deadline = {}, .stream = stream()}; }

 private:
  std::unique_ptr<CopyLane> lane_;
};

using NcclProgram = std::function<std::string(std::unique_ptr<Communicator> world)>;

// What each rank's program says, or why it has no communicator.
inline std::vector<std::string> on_nccl_threads(int ranks, const CommunicatorOptions& options,
                                                const std::vector<std::string>& libraries,
                                                const NcclProgram& program) {
  auto hosts = make_inproc_groups(ranks, options);
  if (!hosts.has_value()) return {std::string(hosts.error().message())};
  return on_threads<std::string>(ranks, [&](int rank) -> std::string {
    auto& world = hosts.value()[static_cast<std::size_t>(rank)];
    auto path = make_nccl_path(world->members(), libraries, 0, 60);
    if (!path.has_value()) return std::string(path.error().message());
    world->add_path(std::move(path).value());
    if (options.algorithm == "two_level") {
      auto levels = make_nccl_two_levels(world->members(), {MemorySpace::kCuda, 0});
      if (!levels.has_value()) return std::string(levels.error().message());
      world->add_path(std::move(levels).value());
    }
    return program(std::move(world));
  });
}

}  // namespace gradwire::gpu
