// The library's log lines on standard error.
#pragma once

#include <string>

#include "base/log.h"
#include "gradwire/status.h"

namespace gradwire {

// flag: trace, debug, info, warn, error, off, or "" for what GRADWIRE_LOG says, else warn. A line
// reads "12:34:56.789 [info] rank 2: text". kInvalidArgument when GRADWIRE_LOG holds another word.
Result<Log> make_log(const std::string& flag, int rank);

}  // namespace gradwire
