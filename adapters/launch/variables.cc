#include "adapters/launch/variables.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/nearest.h"
#include "base/text.h"
#include "collectives/device/nccl_backend.h"
#include "comm/tcp/sockets.h"
#include "comm/ucx/ucx_transport.h"

namespace gradwire::launch {
namespace {

Status bad(const char* variable, const std::string& seen, const char* wanted) {
  return {Code::kInvalidArgument, std::string("bad value for ") + variable + " (got '" + seen +
                                      "', expected " + wanted + ")"};
}

}  // namespace

Result<std::string> secret(const EnvLookup& env) {
  if (const auto given = env("GRADWIRE_SECRET")) return *given;
  const auto path = env("GRADWIRE_SECRET_FILE");
  if (!path) return std::string();
  auto read = read_text(*path);
  if (!read.has_value()) return read.error().with_context("bad value for GRADWIRE_SECRET_FILE");
  std::string contents = std::move(read).value();
  while (!contents.empty() && (contents.back() == '\n' || contents.back() == '\r'))
    contents.pop_back();
  if (!contents.empty()) return contents;
  return bad("GRADWIRE_SECRET_FILE", *path, "a file with a secret in it");
}

Result<bool> checksums(const EnvLookup& env, bool otherwise) {
  const std::string value = env("GRADWIRE_CHECKSUM").value_or(otherwise ? "1" : "0");
  if (value == "0" || value == "1") return value == "1";
  return bad("GRADWIRE_CHECKSUM", value, "0 or 1");
}

Result<double> tcp_rate(const EnvLookup& env) {
  const auto value = env("GRADWIRE_TCP_RATE");
  if (!value) return 0.0;
  const auto rate = to_double(*value);
  if (rate && *rate >= 1e3 && *rate <= 1e12) return *rate;
  return bad("GRADWIRE_TCP_RATE", *value, "1e3 to 1e12 bytes per second");
}

Result<std::string> congestion(const EnvLookup& env) {
  const auto name = env("GRADWIRE_TCP_CONGESTION");
  if (!name) return std::string();
  GW_TRY(tcp::check_congestion(*name).with_context("bad value for GRADWIRE_TCP_CONGESTION"));
  return *name;
}

Status check_transport(std::string_view transport) {
  if (is_nccl(transport)) {
    GW_TRY(nccl_ordinal(transport).error().with_context("transport"));
    return check_have_nccl().with_context("transport nccl");
  }
  const std::vector<std::string> known{"auto", "shm", "ucx", "tcp", "nccl"};
  if (std::ranges::find(known, transport) == known.end()) {
    return {Code::kInvalidArgument, "unknown transport '" + std::string(transport) +
                                        "' between processes" + did_you_mean(transport, known) +
                                        " (expected auto, shm, ucx, tcp, nccl or nccl:N)"};
  }
  if (transport != "ucx" || kHaveUcx) return {};
  return {Code::kUnsupported, "transport ucx: this build has none (expected auto or tcp)"};
}

}  // namespace gradwire::launch
