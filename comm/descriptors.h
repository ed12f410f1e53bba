// How many files and sockets this process may have open.
#pragma once

#include <cstddef>
#include <string_view>

#include "gradwire/status.h"

namespace gradwire::comm {

// Sees to it that this process can open `more` descriptors: raises the soft limit (RLIMIT_NOFILE)
// as far as the hard one allows, up to 65536 or what is needed. kUnsupported when that is not
// enough: names what wants them, both limits, how many are wanted and open, and the remedy.
Status make_room_for_descriptors(std::size_t more, std::string_view what);

}  // namespace gradwire::comm
