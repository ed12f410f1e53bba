// Small files, read and written in one go.
#pragma once

#include <string>
#include <string_view>

#include "gradwire/status.h"

namespace gradwire {

// kInvalidArgument names the path and the reason, as open_to_read() of base/files.h.
Result<std::string> read_whole_file(const std::string& path);
// Replaces what was there.
Status write_whole_file(const std::string& path, std::string_view contents);
// Leaves what was there.
Status append_to_file(const std::string& path, std::string_view contents);
// Replaces what was there, so that readers see the old contents or the new ones, also after
// a crash.
Status replace_whole_file(const std::string& path, std::string_view contents);

}  // namespace gradwire
