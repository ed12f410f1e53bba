#include "comm/ucx/settings.h"

#include <ucs/debug/debug.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "base/text.h"

namespace gradwire::ucx {
namespace {

struct Setting {
  const char* key;  // as in UCX_...
  const char* value;
  // 1.13.1 knows the keys of a transport's own table without the transport's name, and others not
  // at all: null. It answers Success either way and warns later.
  const char* key_1_13;
};

// Statuses say little, so tests/comm/ucx_taken_test.cc looks at effects.
constexpr Setting kSettings[] = {
    // Without it, peer error handling silently turns shared memory into TCP over loopback.
    {"MM_ERROR_HANDLING", "y", "MM_ERROR_HANDLING"},
    {"KEEPALIVE_INTERVAL", "1s", "KEEPALIVE_INTERVAL"},
    // An idle link that goes down is noticed in about 4 s; 1.13.1 needs all three.
    {"TCP_KEEPIDLE", "2s", "KEEPIDLE"},
    {"TCP_KEEPINTVL", "1s", "KEEPINTVL"},
    {"TCP_KEEPCNT", "3", "KEEPCNT"},
    {"TCP_USER_TIMEOUT", "4s", nullptr},  // a link that goes down under a send
    // Rendezvous over TCP halves the throughput when both directions are busy: its control messages
    // queue behind the bulk of the other direction. Eager sends also end without the receiver's
    // consent, so that every ticket settles. Fragments are sent from the user's memory.
    {"RNDV_THRESH", "inf", "RNDV_THRESH"},
    {"ZCOPY_THRESH", "0", "ZCOPY_THRESH"},
};

// These variables are UCX's own user interface, documented by UCX; what the user says there goes
// before what is said here. gradwire itself reads no environment below apps/ and adapters/.
bool user_set(const char* key) {
  return std::getenv((std::string("UCX_") + key).c_str()) !=
         nullptr;  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace

Status error(const char* what, ucs_status_t status) {
  return Status(Code::kInternal, format("ucx: %s: %s", what, ucs_status_string(status)));
}

Result<ucp_config_t*> read_settings() {
  ucp_config_t* config = nullptr;
  if (const auto status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return error("reading its configuration", status);
  }
  unsigned major = 0, minor = 0, patch = 0;
  ucp_get_version(&major, &minor, &patch);  // of the library that runs
  const bool old = major == 1 && minor <= 13;
  for (const Setting& setting : kSettings) {
    const char* key = old ? setting.key_1_13 : setting.key;
    if (key != nullptr && !user_set(setting.key)) {
      (void)ucp_config_modify(config, key, setting.value);
    }
  }
  return config;
}

void release_signals() {
  if (user_set("HANDLE_ERRORS")) return;
  for (const int number : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(number);
}

}  // namespace gradwire::ucx
