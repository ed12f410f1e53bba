#include "gradwire/status.h"

#include <cstdio>
#include <cstdlib>

#include "base/check.h"

namespace gradwire {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kUnsupported: return "unsupported";
    case Code::kOutOfMemory: return "out of memory";
    case Code::kPeerLost: return "peer lost";
    case Code::kTimedOut: return "timed out";
    case Code::kCancelled: return "cancelled";
    case Code::kCorruptPayload: return "corrupt payload";
    case Code::kRankMismatch: return "rank mismatch";
    case Code::kInternal: return "internal error";
  }
  return "unknown code";
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return {code(), std::string(context) + ": " + std::string(message())};
}

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "gradwire: bug: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace gradwire
