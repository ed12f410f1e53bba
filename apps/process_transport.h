// What carries bytes between processes in this build.
#pragma once

#include <memory>

#include "base/log.h"
#include "gradwire/rendezvous.h"
#include "gradwire/status.h"
#include "gradwire/transport.h"

namespace gradwire {

// Collective over the ranks of `rendezvous`. deadline_seconds: of one operation; a silent rank is
// found lost well before it passes. kUnsupported when this build has no such transport.
Result<std::unique_ptr<Transport>> make_process_transport(const Rendezvous& rendezvous,
                                                          double deadline_seconds, const Log& log);

}  // namespace gradwire
