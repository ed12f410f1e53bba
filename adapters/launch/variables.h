// What a job's variables say, checked once for programs and for the C interface. Errors are
// kInvalidArgument and name the variable, the value seen and the value wanted.
#pragma once

#include <string>
#include <string_view>

#include "gradwire/config.h"
#include "gradwire/status.h"

namespace gradwire::launch {

// GRADWIRE_SECRET, or the contents of the file that GRADWIRE_SECRET_FILE names, without the line
// end; "" when neither is set.
Result<std::string> secret(const EnvLookup& env);

// GRADWIRE_CHECKSUM.
Result<bool> checksums(const EnvLookup& env, bool otherwise);

// GRADWIRE_TCP_RATE: how many bytes a second a slow link carries; 0 when it is not set.
Result<double> tcp_rate(const EnvLookup& env);

// GRADWIRE_TCP_CONGESTION, which the kernel must have; "" when it is not set.
Result<std::string> congestion(const EnvLookup& env);

// "auto", "shm", "ucx", "tcp", "nccl" or "nccl:N": what connects processes. kUnsupported for what
// this build has not.
Status check_transport(std::string_view transport);

}  // namespace gradwire::launch
