// How UCX is configured, and what it must not do to the process.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/ucx/devices.h"
#include "gradwire/status.h"

namespace gradwire::ucx {

// Of a call into UCX that fails for reasons outside this program: "ucx: WHAT: UCX's own words".
Status error(const char* what, ucs_status_t status);
// What one of UCX's functions prints; "" without memory for it.
std::string printed(const std::function<void(std::FILE*)>& print);

// One setting, for people who ask why.
struct Setting {
  enum class Source : std::uint8_t {
    kGradwire,      // made here
    kUser,          // an environment variable of UCX says otherwise, and wins
    kUnknown,       // this version of UCX does not know it
    kNotWanted,     // would do harm on this machine; UCX's default stays
    kWithoutEffect  // UCX took it and did not change: its default stays
  };
  std::string variable;  // "UCX_RNDV_THRESH"
  std::string value;     // here; the user's where the user has set it
  Source source = Source::kGradwire;
  std::string why;
};
std::string_view to_string(Setting::Source source);

struct SettingsOptions {
  std::string interfaces;      // as for choose_devices()
  bool tcp_alone = false;      // no shared memory, no RDMA
  bool without_posix = false;  // no files in /dev/shm; System V's shared memory stays
};

struct Settings {
  struct Release {
    void operator()(ucp_config_t* config) const { ucp_config_release(config); }
  };
  std::unique_ptr<ucp_config_t, Release> config;
  std::vector<Setting> list;
  DeviceChoice devices;
};

// Everything that is to be different from UCX's defaults. What the user has set in the environment
// stays. kInvalidArgument for interfaces that are not there; kUnsupported for tcp_alone where the
// user chose transports or devices, for without_posix where the user chose transports.
Result<Settings> read_settings(const SettingsOptions& options = {});

// "1.13.1": the library that runs, which need not be the one that was compiled against.
std::string library_version();

// Gives SIGSEGV, SIGBUS, SIGFPE, SIGILL and the like back to the handlers that had them before UCX
// was loaded.
void release_signals();

}  // namespace gradwire::ucx
