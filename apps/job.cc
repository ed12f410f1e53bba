#include "apps/job.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "apps/environment.h"
#include "apps/flight_folder.h"
#include "apps/whole_file.h"
#include "base/text.h"
#include "comm/liveness.h"
#include "comm/rendezvous/agree.h"
#include "comm/rendezvous/socket.h"
#include "comm/tcp/interfaces.h"
#include "comm/tcp/sockets.h"
#include "comm/tcp/tcp_transport.h"
#include "comm/ucx/ucx_transport.h"

namespace gradwire {
namespace {

constexpr double kLongestDeadline = 1e9;  // seconds; also what gradwire run takes

Result<std::string> job_secret() {
  if (const auto secret = environment("GRADWIRE_SECRET")) return *secret;
  const auto path = environment("GRADWIRE_SECRET_FILE");
  if (!path) return std::string();
  auto contents = read_whole_file(*path);
  if (!contents.has_value()) return contents.error().with_context("GRADWIRE_SECRET_FILE");
  std::string secret = std::move(contents).value();
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (!secret.empty()) return secret;
  return Status(Code::kInvalidArgument,
                "GRADWIRE_SECRET_FILE: '" + *path + "' is empty (a secret wanted)");
}

Result<bool> checksums_from_environment(bool otherwise) {
  const std::string value = environment("GRADWIRE_CHECKSUM").value_or(otherwise ? "1" : "0");
  if (value == "0" || value == "1") return value == "1";
  return Status(Code::kInvalidArgument,
                "bad value for GRADWIRE_CHECKSUM ('" + value + "' seen; 0 or 1 wanted)");
}

Result<double> tcp_rate() {
  const auto value = environment("GRADWIRE_TCP_RATE");
  if (!value) return 0.0;
  const auto rate = to_double(*value);
  if (rate && *rate >= 1e3 && *rate <= 1e12) return *rate;
  return Status(Code::kInvalidArgument, "bad value for GRADWIRE_TCP_RATE ('" + *value +
                                            "' seen; bytes per second, 1e3 to 1e12, wanted)");
}

Status usable_congestion() {
  const auto name = environment("GRADWIRE_TCP_CONGESTION");
  if (!name) return {};
  return tcp::check_congestion(*name).with_context("bad value for GRADWIRE_TCP_CONGESTION");
}

Result<std::unique_ptr<Transport>> make_transport(const std::string& name, const LaunchInfo& launch,
                                                  const Rendezvous& rendezvous,
                                                  double liveness_seconds, const Log& log) {
  if (name == "tcp") {
    TcpOptions tcp;
    tcp.liveness_seconds = liveness_seconds;
    tcp.interface = environment("GRADWIRE_IFNAME").value_or("");
    tcp.congestion = environment("GRADWIRE_TCP_CONGESTION").value_or("");
    GW_ASSIGN(tcp.link_rate, tcp_rate());
    tcp.log = log;
    return make_tcp_transport(rendezvous, tcp);
  }
  UcxOptions ucx;
  ucx.liveness_seconds = liveness_seconds;
  ucx.interfaces = ucx_interfaces(launch);
  ucx.log = log;
  return make_ucx_transport(rendezvous, ucx);
}

}  // namespace

Status check_settings(const std::string& transport) {
  constexpr std::array<std::string_view, 4> kTransports{"auto", "shm", "ucx", "tcp"};
  if (std::ranges::find(kTransports, transport) == kTransports.end()) {
    return {Code::kInvalidArgument,
            "no transport '" + transport + "' between processes (auto, shm, ucx or tcp wanted)"};
  }
  if (transport == "ucx" && !kHaveUcx) {
    return {Code::kUnsupported, "transport ucx: this build has none (auto or tcp wanted)"};
  }
  GW_TRY(checksums_from_environment(false).error());
  GW_TRY(links_from_environment(environment, LinksFrom::kDefaults).error());
  GW_TRY(check_flight_folder(flight_folder("")));
  if (messages_of(transport) != "tcp") return {};
  GW_TRY(tcp_rate().error());
  return usable_congestion();
}

Result<JoinedJob> join_job(const LaunchInfo& launch, const std::string& transport,
                           const CommunicatorOptions& options, const Log& log, LinksFrom links) {
  GW_TRY(check_settings(transport));
  GW_ASSIGN(const std::string secret, job_secret());
  log(LogLevel::kDebug, "launched by " + launch.source + ", rendezvous " + launch.rendezvous);
  JoinedJob job;
  GW_ASSIGN(job.rendezvous, open_rendezvous(launch, secret));
  // Ranks that take different ones would wait for one another until the rendezvous gives up.
  GW_TRY(rendezvous::agree_together(job.rendezvous, "transport", transport));
  CommunicatorOptions checked = options;
  GW_ASSIGN(checked.checksums, checksums_from_environment(options.checksums));
  GW_TRY(rendezvous::agree(job.rendezvous, "GRADWIRE_CHECKSUM", checked.checksums ? "1" : "0"));
  GW_TRY(rendezvous::agree(job.rendezvous, "GRADWIRE_LINKS", to_string(links)));
  const bool share = transport == "auto" || transport == "shm";
  GW_ASSIGN(auto made, make_transport(messages_of(transport), launch, job.rendezvous,
                                      comm::liveness_for(options.deadline_seconds), log));
  checked.flight_folder = flight_folder(options.flight_folder);
  checked.warn = [log](std::string_view line) { log(LogLevel::kWarn, line); };
  if (checked.node.empty()) checked.node = environment("GRADWIRE_NODE").value_or("");
  GW_ASSIGN(checked, with_nodes(job.rendezvous, checked));
  GW_ASSIGN(job.communicator, share ? make_sharing_communicator(std::move(made), checked)
                                    : make_communicator(std::move(made), checked));
  const std::string taken = transport_of(*job.communicator);
  if (transport == "shm" && job.rendezvous.size > 1 && !taken.ends_with(kSharedMemory)) {
    return Status(Code::kUnsupported, "transport shm: no shared memory (" + taken + ")");
  }
  GW_TRY(take_links(*job.communicator, links, links_file(environment)));
  job.launcher =
      LauncherWatch::start(environment("GRADWIRE_LAUNCHER").value_or(""), *job.communicator);
  return job;
}

std::string ucx_interfaces(const LaunchInfo& launch) {
  if (const auto wanted = environment("GRADWIRE_IFNAME")) return *wanted;
  const auto place = rendezvous::parse_host_port(launch.rendezvous);
  if (!place.has_value()) return "";
  const std::string& host = place.value().host;
  if (host != "localhost" && host != "::1" && !host.starts_with("127.")) return "";
  const std::vector<tcp::Interface> here = tcp::list_interfaces();
  const auto loopback =
      std::ranges::find_if(here, [](const tcp::Interface& one) { return one.loopback && one.up; });
  return loopback == here.end() ? "" : loopback->name;
}

std::string messages_of(const std::string& transport) {
  if (transport != "auto" && transport != "shm") return transport;
  return kHaveUcx ? "ucx" : "tcp";
}

std::string transport_from_environment() {
  return environment("GRADWIRE_TRANSPORT").value_or("auto");
}

std::string transport_of(const Communicator& communicator) {
  const std::string text = communicator.describe();
  const std::size_t over = text.find(" over ");
  return over == std::string::npos ? text : text.substr(over + 6);
}

Result<double> deadline_from_environment(double otherwise) {
  const auto text = environment("GRADWIRE_DEADLINE");
  if (!text) return otherwise;
  const auto seconds = to_double(*text);
  if (seconds && *seconds > 0 && *seconds <= kLongestDeadline) return *seconds;
  return Status(Code::kInvalidArgument, "bad value for GRADWIRE_DEADLINE ('" + *text +
                                            "' seen; seconds above 0, at most 1e9, wanted)");
}

int fail_promptly(const Status& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "gradwire: error: %.*s\n", static_cast<int>(error.message().size()),
               error.message().data());
  std::fflush(stderr);
  // Destructors say goodbye to the other ranks, but may not hold the process up.
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::_Exit(1);
  }).detach();
  return 1;
}

}  // namespace gradwire
