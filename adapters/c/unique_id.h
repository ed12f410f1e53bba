// A gw_unique_id: where rank 0 listens, and a secret that proves whoever comes.
//
//   id := "gw1 " job " " secret " " network " " pid " " fd " " port " " address     text,
//   zero-ended
//
// network: 64 bits of network_identity(), in hexadecimal: ranks that have the same come over
// loopback. pid and fd: who made the id, and its listening socket; nobody else looks at them.
// address: numeric, "-" where there is none.
#pragma once

#include <memory>
#include <string>

#include "adapters/c/join.h"
#include "gradwire/c/communicator.h"
#include "gradwire/rendezvous.h"
#include "gradwire/status.h"

namespace gradwire::c {

struct MeetingPlace {
  std::string job;
  std::string secret;
  std::string network;
  long pid = 0;
  int fd = -1;
  int port = 0;
  std::string address;
};

// Listens; the socket stays open until the place is taken by rank 0 or released.
Result<MeetingPlace> open_meeting_place(const Settings& settings);
std::string to_text(const MeetingPlace& place);
// kInvalidArgument for text that no to_text() made.
Result<MeetingPlace> parse_meeting_place(std::string_view text);
// Closes the socket of a place that was opened in this process.
Status release(const MeetingPlace& place);

// Ranks come together there. Rank 0: in the process that opened it, and once.
Result<Rendezvous> meet_at(const MeetingPlace& place, int rank, int size, const Settings& settings);

}  // namespace gradwire::c
