// How UCX is configured, and what it must not do to the process.
#pragma once

#include <ucp/api/ucp.h>

#include "gradwire/status.h"

namespace gradwire::ucx {

// Of a call into UCX that fails for reasons outside this program: "ucx: WHAT: UCX's own words".
Status error(const char* what, ucs_status_t status);

// To be released with ucp_config_release().
Result<ucp_config_t*> read_settings();

// Gives SIGSEGV, SIGBUS, SIGFPE, SIGILL and the like back to whoever had them before UCX was
// loaded.
void release_signals();

}  // namespace gradwire::ucx
