#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "adapters/c/join.h"
#include "adapters/c/outcome.h"
#include "adapters/launch/connect.h"
#include "adapters/launch/variables.h"
#include "comm/tcp/interfaces.h"

namespace gradwire::c {
namespace {

constexpr double kLongest = 1e9;  // seconds

Status bad(const std::string& where, const std::string& seen, const std::string& wanted) {
  return {Code::kInvalidArgument,
          "bad value for " + where + " (got '" + seen + "', expected " + wanted + ")"};
}

std::string given_or(const char* given, const char* variable, const std::string& otherwise) {
  if (given != nullptr) return given;
  return environment(variable).value_or(otherwise);
}

Result<double> number_from(const char* variable, double least, double most, double otherwise,
                           const std::string& wanted) {
  const auto text = environment(variable);
  if (!text) return otherwise;
  const auto number = to_double(*text);
  if (number && *number >= least && *number <= most) return *number;
  return bad(variable, *text, wanted);
}

Status check_seconds(const char* field, double seconds, double least) {
  if (seconds >= least && seconds <= kLongest) return {};
  return bad(field, shortest(seconds), format("%g to 1e9 seconds, or 0 for the default", least));
}

Result<std::string> secret_from(const char* given) {
  if (given != nullptr) return std::string(given);
  return launch::secret(environment);
}

Result<LinksFrom> links_from(const char* given) {
  const auto lookup = [given](const std::string& name) {
    return given == nullptr ? environment(name) : std::optional<std::string>(given);
  };
  auto links = links_from_environment(lookup, LinksFrom::kDefaults);
  if (given != nullptr && !links.has_value()) return links.error().with_context("links");
  return links;
}

// One line at a time, of at least that urgency.
Log log_to(const gw_comm_options& options) {
  if (options.log == nullptr) return {};
  const auto mutex = std::make_shared<std::mutex>();
  const gw_log_level most = std::clamp(options.log_level, GW_LOG_ERROR, GW_LOG_TRACE);
  return {static_cast<LogLevel>(GW_LOG_TRACE - most),
          [mutex, log = options.log, context = options.log_context](LogLevel level,
                                                                    std::string_view line) {
            const std::string text(line);
            const std::lock_guard lock(*mutex);
            log(context, static_cast<gw_log_level>(GW_LOG_TRACE - static_cast<int>(level)),
                text.c_str());
          }};
}

LaunchArguments launch_from(const gw_comm_options& options) {
  LaunchArguments given;
  if (options.size != 0) {
    given.rank = options.rank;
    given.size = options.size;
  }
  if (options.rendezvous != nullptr) given.rendezvous = options.rendezvous;
  if (options.job != nullptr) given.job = options.job;
  return given;
}

Status read_clocks(const gw_comm_options& options, Settings& settings) {
  constexpr double kLeastLiveness = 0.5;
  GW_ASSIGN(settings.liveness_seconds,
            number_from("GRADWIRE_DEADLINE", kLeastLiveness, kLongest, settings.liveness_seconds,
                        "0.5 to 1e9 seconds"));
  if (options.liveness_seconds != 0) settings.liveness_seconds = options.liveness_seconds;
  if (options.timeout_seconds != 0) settings.timeout_seconds = options.timeout_seconds;
  if (options.rendezvous_seconds != 0) settings.rendezvous_seconds = options.rendezvous_seconds;
  GW_TRY(check_seconds("liveness_seconds", settings.liveness_seconds, kLeastLiveness));
  GW_TRY(check_seconds("timeout_seconds", settings.timeout_seconds, 1e-3));
  return check_seconds("rendezvous_seconds", settings.rendezvous_seconds, 1e-3);
}

Status read_transport(const gw_comm_options& options, Settings& settings) {
  settings.transport = given_or(options.transport, "GRADWIRE_TRANSPORT", "auto");
  GW_TRY(launch::check_transport(settings.transport));
  settings.interface = given_or(options.interface_name, "GRADWIRE_IFNAME", "");
  if (launch::messages_of(settings.transport) != "tcp") return {};
  GW_ASSIGN(settings.congestion, launch::congestion(environment));
  GW_ASSIGN(settings.link_rate, launch::tcp_rate(environment));
  return {};
}

}  // namespace

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<Settings> read_settings(const char* function, const gw_comm_options* given) {
  gw_comm_options options = GW_COMM_OPTIONS_INIT;
  GW_TRY(read_struct(given, function, options));
  Settings settings;
  settings.log = log_to(options);
  const auto read = [&]() -> Status {
    GW_TRY(read_clocks(options, settings));
    GW_TRY(read_transport(options, settings));
    if (options.algorithm != nullptr) settings.algorithm = options.algorithm;
    GW_ASSIGN(settings.links, links_from(options.links));
    GW_ASSIGN(settings.secret, secret_from(options.secret));
    settings.launch = launch_from(options);
    settings.flight_folder = given_or(options.flight_folder, "GRADWIRE_FLIGHT", "");
    settings.node = environment("GRADWIRE_NODE").value_or("");
    GW_ASSIGN(const bool checksums, launch::checksums(environment, false));
    settings.checksums = checksums || options.checksums != 0;
    return {};
  };
  const Status status = read();
  if (!status.ok()) return status.with_context(function);
  return settings;
}

Result<std::string> outward_address(const Settings& settings) {
  const std::vector<tcp::Interface> here = tcp::list_interfaces();
  GW_ASSIGN(const tcp::Interface chosen, tcp::choose_interface(here, settings.interface));
  return chosen.address;
}

}  // namespace gradwire::c
