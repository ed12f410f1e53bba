// SHA-256 of files, for what comes from the web.
#pragma once

#include <string>

#include "gradwire/status.h"

namespace gradwire {

// Of a file's contents, as 64 hex digits. kInvalidArgument when it cannot be read.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace gradwire
