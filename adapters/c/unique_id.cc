#include "adapters/c/unique_id.h"

#include <unistd.h>

#include <sstream>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "comm/host.h"
#include "comm/rendezvous/hmac.h"
#include "comm/rendezvous/socket.h"
#include "comm/tcp/interfaces.h"

namespace gradwire::c {
namespace {

constexpr std::string_view kHead = "gw1";
constexpr std::size_t kSecretBytes = 16;

std::string network_here() {
  return format("%016llx", static_cast<unsigned long long>(hash_name(comm::network_identity())));
}

Status not_here(const std::string& why) {
  return {Code::kInvalidArgument,
          "unique id: " + why + " (expected use by rank 0, once, in the process that made the id)"};
}

}  // namespace

Result<MeetingPlace> open_meeting_place(const Settings& settings) {
  MeetingPlace place;
  place.job =
      settings.launch.job.empty() ? rendezvous::random_hex(kSecretBytes) : settings.launch.job;
  place.secret = rendezvous::random_hex(kSecretBytes);
  place.network = network_here();
  GW_ASSIGN(place.address, outward_address(settings));
  // Whoever asked for an interface is reached over that alone.
  const bool bound = !settings.interface.empty() && !place.address.empty();
  GW_ASSIGN(rendezvous::Fd listener, rendezvous::listen_on(bound ? place.address : "0.0.0.0", 0));
  GW_ASSIGN(place.port, rendezvous::local_port(listener.get()));
  if (bound) place.network = "-";
  place.pid = getpid();
  place.fd = dup(listener.get());
  if (place.fd < 0) return Status(Code::kInternal, "unique id: no descriptor is left");
  if (place.job.find_first_of(" \n") != std::string::npos) {
    return Status(Code::kInvalidArgument,
                  "unique id: job '" + place.job + "' (expected a name without blanks)");
  }
  return place;
}

std::string to_text(const MeetingPlace& place) {
  std::ostringstream text;
  text << kHead << ' ' << place.job << ' ' << place.secret << ' ' << place.network << ' '
       << place.pid << ' ' << place.fd << ' ' << place.port << ' '
       << (place.address.empty() ? "-" : place.address);
  return text.str();
}

Result<MeetingPlace> parse_meeting_place(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string head;
  MeetingPlace place;
  words >> head >> place.job >> place.secret >> place.network >> place.pid >> place.fd >>
      place.port >> place.address;
  const bool whole = !words.fail() && words.peek() == std::istringstream::traits_type::eof();
  const bool sound = whole && head == kHead && place.secret.size() == 2 * kSecretBytes &&
                     place.port > 0 && place.port < 65536;
  if (!sound) {
    return Status(Code::kInvalidArgument,
                  "unique id: malformed (expected the bytes that gw_unique_id_create() made)");
  }
  if (place.address == "-") place.address.clear();
  return place;
}

Status release(const MeetingPlace& place) {
  if (place.pid != getpid()) return not_here("made by another process");
  const Status open = rendezvous::check_listening(place.fd);
  if (!open.ok()) return not_here("used or released already");
  close(place.fd);
  return {};
}

Result<Rendezvous> meet_at(const MeetingPlace& place, int rank, int size,
                           const Settings& settings) {
  TcpStoreOptions options{.host = place.address,
                          .port = place.port,
                          .rank = rank,
                          .size = size,
                          .job = place.job,
                          .secret = place.secret,
                          .timeout_seconds = settings.rendezvous_seconds};
  if (place.network == network_here()) options.host = "127.0.0.1";
  if (rank == 0) {
    if (place.pid != getpid()) return not_here("made by another process");
    if (!rendezvous::check_listening(place.fd).ok()) return not_here("used or released already");
    options.listen_fd = place.fd;
  } else if (options.host.empty()) {
    return Status(Code::kUnsupported,
                  "unique id: rank 0 is on another host and has no address that leads there");
  }
  Rendezvous rendezvous{.rank = rank,
                        .size = size,
                        .job = place.job,
                        .store = nullptr,
                        .timeout_seconds = settings.rendezvous_seconds,
                        .secret = place.secret};
  GW_ASSIGN(rendezvous.store, make_tcp_store(options));
  return rendezvous;
}

}  // namespace gradwire::c
