// A rank of `gradwire run` notices that its launcher has died, says so, and ends.
#pragma once

#include <memory>
#include <string>

#include "gradwire/communicator.h"

namespace gradwire {

// Watches as long as it lives. When the launcher ends, the communicator's operations end with
// kCancelled, "the launcher has died", which also goes into the flight record; the line stands on
// standard error, if that still leads anywhere; and a second later the process ends with status 1,
// whatever it is doing.
class LauncherWatch {
 public:
  // `launcher`: GRADWIRE_LAUNCHER, its process number. nullptr when it is empty or no process, and
  // where the system cannot watch processes (Linux before 5.3). `communicator` outlives the watch.
  // `flight`: the folder of flight records, for a mark beside this rank's; empty: none. A mark of
  // an earlier job is removed there.
  static std::unique_ptr<LauncherWatch> start(const std::string& launcher,
                                              Communicator& communicator,
                                              const std::string& flight = {});
  virtual ~LauncherWatch() = default;
};

}  // namespace gradwire
