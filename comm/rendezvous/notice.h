// What rank 0 tells the others of itself by a launcher's exchange.
#pragma once

#include <string>
#include <string_view>

#include "comm/rendezvous/socket.h"
#include "gradwire/status.h"

namespace gradwire::rendezvous {

struct Notice {
  HostPort place;
  std::string session;  // random: keeps apart jobs of one name, one after another or at once
  std::string secret;   // random; "" where all ranks know one already
};

// notice = "gradwire1;" host ";" port ";" session ";" secret, without blanks.
std::string encode(const Notice& notice);
// kInvalidArgument quotes what is no notice.
Result<Notice> parse_notice(std::string_view text);

}  // namespace gradwire::rendezvous
