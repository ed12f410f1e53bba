// Stands in for process_transport_ucx.cc in builds without UCX.
#include <string>

#include "apps/process_transport.h"

namespace gradwire {

Result<std::unique_ptr<Transport>> make_process_transport(const Rendezvous& rendezvous,
                                                          double /*deadline_seconds*/,
                                                          const Log& /*log*/) {
  return Status(Code::kUnsupported,
                "nothing carries bytes between the " + std::to_string(rendezvous.size) +
                    " processes of this job: this build has no UCX (libucx-dev wanted when it is "
                    "configured; --inproc " +
                    std::to_string(rendezvous.size) + " runs the ranks as threads)");
}

}  // namespace gradwire
