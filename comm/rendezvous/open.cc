// From what a launcher said to a store that is open.
#include "base/text.h"
#include "comm/rendezvous/hmac.h"
#include "comm/rendezvous/socket.h"
#include "gradwire/config.h"
#include "gradwire/rendezvous.h"

namespace gradwire {
namespace {

constexpr std::string_view kFile = "file://";

// A job's own folder below DIR: jobs with names of their own may share DIR.
std::string job_folder(std::string_view directory, const std::string& job) {
  std::string name;
  for (const char c : job) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_';
    name += plain ? std::string(1, c) : format("%%%02x", static_cast<unsigned char>(c));
  }
  return std::string(directory) + "/" + name;
}

// Jobs may share a secret, and a folder that somebody else can write: what one job has written must
// not pass for another's.
std::string job_secret(std::string_view job, std::string_view secret) {
  if (secret.empty()) return "";
  const auto bytes = [](std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
  };
  return rendezvous::to_hex(
      rendezvous::hmac(bytes(secret), {bytes("gradwire file rendezvous of job"), bytes(job)}));
}

Result<std::shared_ptr<KeyValueStore>> open_store(const LaunchInfo& info, std::string_view secret,
                                                  double timeout_seconds) {
  if (info.rendezvous.rfind(kFile, 0) == 0) {
    const std::string directory = info.rendezvous.substr(kFile.size());
    if (directory.empty())
      return Status(Code::kInvalidArgument, "rendezvous 'file://' (wanted file://DIRECTORY)");
    return make_file_store(job_folder(directory, info.job), job_secret(info.job, secret));
  }
  GW_ASSIGN(const rendezvous::HostPort where, rendezvous::parse_host_port(info.rendezvous));
  return make_tcp_store({.host = where.host,
                         .port = where.port,
                         .rank = info.rank,
                         .size = info.size,
                         .job = info.job,
                         .secret = std::string(secret),
                         .timeout_seconds = timeout_seconds});
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
    return Status(Code::kInvalidArgument,
                  format("%s names no place where the %d ranks meet (wanted: GRADWIRE_RENDEZVOUS="
                         "host:port of rank 0, or file://DIR, on every rank)",
                         info.source.c_str(), info.size));
  GW_ASSIGN(rendezvous.store, open_store(info, secret, timeout_seconds));
  return rendezvous;
}

}  // namespace gradwire
