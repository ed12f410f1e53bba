// What the C handles stand for. A communicator's inside is shared by its handle and its
// aggregators, and a work's needs none, so that they may be freed in any order.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "gradwire/c.h"
#include "gradwire/communicator.h"

namespace gradwire::c {

// One communicator and what C adds to it.
struct Group {
  std::unique_ptr<Communicator> communicator;
  double timeout_seconds = 0;
  std::mutex order;  // held while an operation is given its number
  // Works under way. They keep the count alone: the thread that ends the last one must not be the
  // one that destroys the communicator, which waits for that thread.
  std::shared_ptr<std::atomic<int>> open = std::make_shared<std::atomic<int>>(0);

  std::string description = {};  // for gw_comm_describe()
};

class WorkCell;
class BucketSteps;

}  // namespace gradwire::c

// NOLINTBEGIN(readability-identifier-naming): declared in gradwire/c.h
struct gw_comm {
  static constexpr std::uint64_t kMagic = 0x67775f636f6d6d31;
  std::uint64_t magic = kMagic;
  std::shared_ptr<gradwire::c::Group> group;
};

struct gw_work {
  static constexpr std::uint64_t kMagic = 0x67775f776f726b31;
  std::uint64_t magic = kMagic;
  std::shared_ptr<gradwire::c::WorkCell> cell;
};
// NOLINTEND(readability-identifier-naming)

namespace gradwire::c {

// A handle for the caller.
gw_comm* new_comm(std::unique_ptr<Communicator> communicator, double timeout_seconds);

}  // namespace gradwire::c
