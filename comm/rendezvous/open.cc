// From what a launcher said to a store that is open.
#include <cstdint>
#include <cstdio>
#include <optional>

#include "base/text.h"
#include "comm/rendezvous/exchange.h"
#include "comm/rendezvous/hmac.h"
#include "comm/rendezvous/key_table.h"
#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/tcp_store.h"
#include "comm/tcp/interfaces.h"
#include "gradwire/config.h"
#include "gradwire/rendezvous.h"

namespace gradwire {
namespace rendezvous {

constexpr std::string_view kNoticeVersion = "gradwire1";

std::string encode(const Notice& notice) {
  return format("%s;%s;%d;%s;%s", kNoticeVersion.data(), notice.place.host.c_str(),
                notice.place.port, notice.session.c_str(), notice.secret.c_str());
}

Result<Notice> parse_notice(std::string_view text) {
  char version[16] = {}, host[256] = {}, session[64] = {};
  int port = 0, secret = 0;  // where that begins
  const std::string line(text);
  (void)std::sscanf(line.c_str(), "%15[^;];%255[^;];%5d;%63[^;];%n", version, host, &port, session,
                    &secret);
  if (secret > 0 && version == kNoticeVersion && port >= 1 && port <= 65535)
    return Notice{{host, port}, session, line.substr(static_cast<std::size_t>(secret))};
  return Status(
      Code::kInvalidArgument,
      "rank 0's notice is '" + line + "' (expected one of this version of gradwire, on all ranks)");
}

}  // namespace rendezvous

namespace {

constexpr int kSlurmPorts = 65;  // the step's own, and the next 64

// Jobs may share a secret, and a folder that somebody else can write: what one job has written must
// not pass for another's.
std::string job_secret(std::string_view job, std::string_view secret) {
  if (secret.empty()) return "";
  return rendezvous::to_hex(
      rendezvous::hmac(rendezvous::bytes_of_text(secret),
                       {rendezvous::bytes_of_text("gradwire file rendezvous of job"),
                        rendezvous::bytes_of_text(job)}));
}

// The text behind `scheme` in "scheme:rest"; nullopt of another one.
std::optional<std::string> after(const std::string& rendezvous, std::string_view scheme) {
  if (!rendezvous.starts_with(scheme)) return std::nullopt;
  return rendezvous.substr(scheme.size());
}

// This host as the others reach it.
Result<std::string> own_address(const LaunchInfo& info) {
  if (info.local_size == info.size && info.interface.empty()) return std::string("127.0.0.1");
  GW_ASSIGN(const tcp::Interface chosen,
            tcp::choose_interface(tcp::list_interfaces(), info.interface));
  return chosen.address.empty() ? std::string("127.0.0.1") : chosen.address;
}

// The store at host and port of `options`, for the rank and job of `rendezvous`.
Status open_tcp(Rendezvous& rendezvous, TcpStoreOptions options, int ports = 1) {
  options.rank = rendezvous.rank;
  options.size = rendezvous.size;
  options.job = rendezvous.job;
  options.secret = rendezvous.secret;
  options.timeout_seconds = rendezvous.timeout_seconds;
  GW_ASSIGN(rendezvous.store, rendezvous::make_tcp_store_among(options, ports));
  return {};
}

Result<std::string> exchange(const LaunchInfo& info, std::string_view text, Deadline deadline) {
  if (const auto fd = after(info.rendezvous, "pmi://")) {
    const auto number = to_int(*fd);
    if (!number || *number < 0 || *number > INT32_MAX)
      return Status(Code::kInvalidArgument,
                    "rendezvous '" + info.rendezvous + "' (expected pmi://FILE-DESCRIPTOR)");
    return rendezvous::exchange_over_pmi(static_cast<int>(*number), info.rank, text, deadline);
  }
  if (const auto where = after(info.rendezvous, "torch://")) {
    GW_ASSIGN(const rendezvous::HostPort store, rendezvous::parse_host_port(*where));
    return rendezvous::exchange_over_torch(store, info.job, info.rank, text, deadline);
  }
  return rendezvous::exchange_over_pmix(info.rank, text, deadline);
}

// Rank 0 listens at a port of the kernel's choice before it tells anybody, so nobody else can take
// that port in between.
Status open_by_exchange(const LaunchInfo& info, Rendezvous& rendezvous, Deadline deadline) {
  rendezvous::Notice own;
  rendezvous::Fd listener;
  if (info.rank == 0) {
    GW_ASSIGN(own.place.host, own_address(info));
    GW_ASSIGN(listener, rendezvous::listen_on(own.place.host, 0));
    GW_ASSIGN(own.place.port, rendezvous::local_port(listener.get()));
    own.session = rendezvous::random_hex(8);
    if (rendezvous.secret.empty()) own.secret = rendezvous::random_hex(16);
  }
  auto text = exchange(info, info.rank == 0 ? encode(own) : "", deadline);
  if (!text.has_value())
    return text.error().with_context(format("rank %d: %s", info.rank, info.source.c_str()));
  GW_ASSIGN(const rendezvous::Notice root, rendezvous::parse_notice(text.value()));
  rendezvous.job += "." + root.session;
  if (rendezvous.secret.empty()) rendezvous.secret = root.secret;
  return open_tcp(
      rendezvous,
      {.host = root.place.host, .port = root.place.port, .listen_fd = listener.release()});
}

Status open_store(const LaunchInfo& info, Rendezvous& rendezvous) {
  if (const auto directory = after(info.rendezvous, "file://")) {
    if (directory->empty())
      return {Code::kInvalidArgument, "rendezvous 'file://' (expected file://DIRECTORY)"};
    // Jobs with names of their own may share DIRECTORY.
    GW_ASSIGN(rendezvous.store, make_file_store(*directory + "/" + rendezvous::plain_name(info.job),
                                                job_secret(info.job, rendezvous.secret)));
    return {};
  }
  if (info.rendezvous == "pmix://" || after(info.rendezvous, "pmi://") ||
      after(info.rendezvous, "torch://"))
    return open_by_exchange(info, rendezvous, deadline_in(rendezvous.timeout_seconds));
  const auto slurm = after(info.rendezvous, "slurm://");
  GW_ASSIGN(const rendezvous::HostPort where,
            rendezvous::parse_host_port(slurm.value_or(info.rendezvous)));
  TcpStoreOptions options{.host = where.host, .port = where.port};
  if (!slurm) return open_tcp(rendezvous, options);
  // Others find this host by a name that means something else to itself.
  if (info.rank == 0 && info.local_size != info.size) {
    GW_ASSIGN(const bool own_name, rendezvous::is_loopback(where.host));
    if (own_name) {
      GW_ASSIGN(options.host, own_address(info));
    }
  }
  return open_tcp(rendezvous, options, kSlurmPorts);
}

}  // namespace

Result<Rendezvous> open_rendezvous(const LaunchInfo& info, std::string_view secret,
                                   double timeout_seconds) {
  Rendezvous rendezvous{.rank = info.rank,
                        .size = info.size,
                        .job = info.job,
                        .store = nullptr,
                        .timeout_seconds = timeout_seconds,
                        .secret = std::string(secret)};
  if (info.size == 1) return rendezvous;
  if (info.rendezvous.empty())
    return Status(
        Code::kInvalidArgument,
        format("%s does not say where the %d ranks meet (expected GRADWIRE_RENDEZVOUS=host:port of "
               "rank 0, or file://DIR, or MASTER_ADDR and MASTER_PORT, on every rank)",
               info.source.c_str(), info.size));
  GW_TRY(open_store(info, rendezvous));
  return rendezvous;
}

}  // namespace gradwire
