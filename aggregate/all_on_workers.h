// Work on several tensors, each as one task.
#pragma once

#include <cstddef>
#include <vector>

#include "base/workers.h"
#include "gradwire/status.h"

namespace gradwire {

// Calls one(i), which returns a Status, for every i below `count`, on all workers (null: on the
// caller's thread). The error of the first i that has one.
template <typename One>
Status all_on_workers(Workers* workers, std::size_t count, const One& one) {
  if (workers == nullptr) {
    for (std::size_t i = 0; i < count; ++i) GW_TRY(one(i));
    return {};
  }
  std::vector<Status> statuses(count);
  workers->run(count, [&](std::size_t i, int) { statuses[i] = one(i); });
  for (const Status& status : statuses) GW_TRY(status);
  return {};
}

}  // namespace gradwire
