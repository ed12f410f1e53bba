// Rank 0 holds the table.
#include "comm/rendezvous/tcp_store.h"

#include "base/text.h"
#include "comm/rendezvous/tcp_server.h"
#include "gradwire/rendezvous.h"

namespace gradwire {
namespace {

using rendezvous::Fd;
using rendezvous::JobState;
using rendezvous::TcpServer;

class ServingStore final : public rendezvous::TcpStore {
 public:
  ServingStore(std::shared_ptr<JobState> job, std::unique_ptr<TcpServer> server, std::string host)
      : job_(std::move(job)), server_(std::move(server)), host_(std::move(host)) {}

  Status set(std::string_view key, ConstByteSpan value, Deadline deadline) override {
    GW_TRY(job_->table.set(key, value, deadline).with_context("rank 0"));
    server_->wake();
    return {};
  }

  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    auto value = job_->table.get(key, deadline, [this] { return job_->roster.missing(); });
    if (!value.has_value()) return value.error().with_context("rank 0");
    return value;
  }

  rendezvous::HostPort where() const override { return {host_, server_->port()}; }

 private:
  std::shared_ptr<JobState> job_;
  std::unique_ptr<TcpServer> server_;
  std::string host_;
};

Status check_options(const TcpStoreOptions& options, int ports) {
  if (options.size < 1 || options.size > 65536)
    return {Code::kInvalidArgument, format("world size %d (expected 1..65536)", options.size)};
  if (options.rank < 0 || options.rank >= options.size)
    return {Code::kInvalidArgument,
            format("rank %d (expected 0..%d)", options.rank, options.size - 1)};
  if (options.job.size() > rendezvous::kMaxJobBytes)
    return {Code::kInvalidArgument, format("a job name of %zu bytes (expected at most %zu)",
                                           options.job.size(), rendezvous::kMaxJobBytes)};
  if (ports < 1 || options.port + ports > 65536)
    return {Code::kInvalidArgument,
            format("%d ports from %d on (expected 1 or more, up to 65535)", ports, options.port)};
  if (!(options.timeout_seconds > 0))
    return {Code::kInvalidArgument,
            format("rendezvous timeout %g s (expected more than 0)", options.timeout_seconds)};
  return {};
}

// On the first port that nobody has.
Result<Fd> first_free(const TcpStoreOptions& options, int ports) {
  Result<Fd> listener = rendezvous::listen_on(options.host, options.port);
  for (int next = 1; next < ports && !listener.has_value(); ++next)
    listener = rendezvous::listen_on(options.host, options.port + next);
  if (listener.has_value() || ports == 1) return listener;
  return listener.error().with_context(
      format("no port from %d to %d is free", options.port, options.port + ports - 1));
}

Result<std::shared_ptr<KeyValueStore>> serve(const TcpStoreOptions& options, int ports) {
  Fd listener(options.listen_fd);
  if (!listener.valid()) {
    GW_ASSIGN(listener, first_free(options, ports));
  }
  rendezvous::TcpServerOptions server_options;
  if (options.timeout_seconds < server_options.goodbye_seconds)
    server_options.goodbye_seconds = options.timeout_seconds;
  auto job = std::make_shared<JobState>(options.job, options.size, options.secret);
  GW_ASSIGN(auto server, TcpServer::start(std::move(listener), job, server_options));
  return std::shared_ptr<KeyValueStore>(
      std::make_shared<ServingStore>(std::move(job), std::move(server), options.host));
}

}  // namespace

Result<std::shared_ptr<KeyValueStore>> make_tcp_store(const TcpStoreOptions& options) {
  return rendezvous::make_tcp_store_among(options, 1);
}

Result<std::shared_ptr<KeyValueStore>> rendezvous::make_tcp_store_among(
    const TcpStoreOptions& options, int ports) {
  GW_TRY(check_options(options, ports));
  if (options.rank == 0) return serve(options, ports);
  if (options.port < 1 || options.port > 65535)
    return Status(Code::kInvalidArgument,
                  format("rank %d: rendezvous port %d (expected the port of rank 0, 1..65535)",
                         options.rank, options.port));
  return join_tcp_store({options.host, options.port}, ports, options,
                        deadline_in(options.timeout_seconds));
}

std::string rendezvous::place_of(const KeyValueStore* store) {
  const auto* tcp = dynamic_cast<const TcpStore*>(store);
  return tcp == nullptr ? "" : to_string(tcp->where());
}

int tcp_store_port(const KeyValueStore& store) {
  const auto* tcp = dynamic_cast<const rendezvous::TcpStore*>(&store);
  return tcp == nullptr ? 0 : tcp->where().port;
}

}  // namespace gradwire
