// A whole file in memory, gunzipped if it is gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// Plain and gzip files alike (told apart by their first bytes, not by their name). At most
// max_bytes of contents: a file that would inflate beyond that is refused. kInvalidArgument for a
// file that is missing or unreadable, kCorruptPayload for a damaged or truncated gzip stream.
Result<std::vector<std::uint8_t>> read_file_bytes(const std::string& path, std::size_t max_bytes);

}  // namespace gradwire
