// What a rank tells the launcher on its way into the job. `gradwire run` can then tell ranks that
// wait for one that has died, and will never come, from ranks that have something to report.
#pragma once

#include "gradwire/config.h"

namespace gradwire::launch {

enum class JoinStep : char {
  kMeeting = 'm',  // looks for the other ranks
  kJoined = 'j',   // has its communicator
};

// Writes to the pipe that GRADWIRE_JOIN_PIPE names, "DESCRIPTOR:INODE", if this process has it; the
// inode tells it from another file that got its number since. Without it nothing happens. Never
// waits.
void tell_launcher(const EnvLookup& env, JoinStep step);

}  // namespace gradwire::launch
