// What readers of files say of bytes that are not what their format says.
#pragma once

#include <string>

#include "gradwire/status.h"

namespace gradwire {

inline Status corrupt_payload(const std::string& what) { return {Code::kCorruptPayload, what}; }

}  // namespace gradwire
