#include "comm/ucx/settings.h"

#include <dlfcn.h>
#include <ucs/debug/debug.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "base/text.h"

namespace gradwire::ucx {
namespace {

// Whose the key is. Only the context's values can be read back; keys of transports that UCX_TLS
// leaves out make UCX complain.
enum class Table : std::uint8_t { kContext, kSharedMemory, kTcp };

struct Wish {
  const char* key;  // as in UCX_...
  const char* value;
  // 1.13.1 knows the keys of a transport's own table without the transport's name, and others not
  // at all: null. It answers Success either way and warns later.
  const char* key_1_13;
  Table table;
  bool tcp_only;  // harmful where an RDMA device carries the bulk
  const char* why;
};

constexpr Wish kWishes[] = {
    {"MM_ERROR_HANDLING", "y", "MM_ERROR_HANDLING", Table::kSharedMemory, false,
     "without it, peer error handling silently turns shared memory into TCP over loopback"},
    {"KEEPALIVE_INTERVAL", "1s", "KEEPALIVE_INTERVAL", Table::kContext, false,
     "a killed process on this host is noticed in a second, not in 20"},
    {"TCP_KEEPIDLE", "2s", "KEEPIDLE", Table::kTcp, false,
     "an idle link that goes down is noticed in about 4 s, with the next two"},
    {"TCP_KEEPINTVL", "1s", "KEEPINTVL", Table::kTcp, false, "see UCX_TCP_KEEPIDLE"},
    {"TCP_KEEPCNT", "3", "KEEPCNT", Table::kTcp, false, "see UCX_TCP_KEEPIDLE"},
    {"TCP_USER_TIMEOUT", "4s", nullptr, Table::kTcp, false,
     "a link that goes down under a send is noticed, too"},
    {"RNDV_THRESH", "inf", "RNDV_THRESH", Table::kContext, true,
     "rendezvous over TCP halves the throughput when both directions are busy: its control "
     "messages queue behind the other direction's bulk"},
    {"ZCOPY_THRESH", "0", "ZCOPY_THRESH", Table::kContext, true,
     "fragments go from the user's memory; otherwise UCX 1.22 copies them in fragments of 8 KB"},
};

std::optional<std::string> user_value(const std::string& key) {
  // These variables are UCX's own user interface, documented by UCX; what the user says there goes
  // before what is said here. gradwire itself reads no environment below apps/ and adapters/.
  const char* value = std::getenv(("UCX_" + key).c_str());  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// What the user has said of `key`, maybe by the older names of one transport.
std::optional<std::string> user_value_of(std::string_view key) {
  if (auto value = user_value(std::string(key))) return value;
  if (key == "MM_ERROR_HANDLING") {
    if (auto value = user_value("SYSV_ERROR_HANDLING")) return value;
    return user_value("POSIX_ERROR_HANDLING");
  }
  return std::nullopt;
}

// Whether UCX_TLS, a list of names ("tcp,sm"; with ^ in front, of those that are not wanted), lets
// UCX take the transports of a table.
bool allowed(Table table) {
  const std::string list = user_value("TLS").value_or("all");
  constexpr std::array kShared = {"sm", "shm", "mm", "sysv", "posix"};
  const bool inverted = list.starts_with('^');
  bool named = false;
  for (std::string_view rest = std::string_view(list).substr(inverted ? 1 : 0); !rest.empty();) {
    const std::size_t comma = rest.find(',');
    std::string_view name = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    if (name.starts_with('\\')) name.remove_prefix(1);  // "exactly this one"
    named = named || name == "all" ||
            (table == Table::kTcp ? name == "tcp" : std::ranges::count(kShared, name) > 0);
  }
  return table == Table::kContext || named != inverted;
}

std::array<unsigned, 3> running_version() {
  std::array<unsigned, 3> version{};
  ucp_get_version(&version[0], &version[1], &version[2]);
  return version;
}

// The context's own table as UCX prints it, for statuses say little: 1.13.1 answers Success to keys
// that it does not know.
std::string table_of(const ucp_config_t* config) {
  return "\n" + printed([config](std::FILE* file) {
           ucp_config_print(config, file, nullptr, UCS_CONFIG_PRINT_CONFIG);
         });
}

std::string line_of(const std::string& table, const std::string& variable) {
  const std::size_t at = table.find("\n" + variable + "=");
  return at == std::string::npos ? "" : table.substr(at + 1, table.find('\n', at + 1) - at - 1);
}

// UCX complains of being asked to give back a signal that it does not have: 1.22 takes none by
// default, and a second transport of one process finds none left.
bool is_ucx_handler(int number) {
  struct sigaction action {};
  if (sigaction(number, nullptr, &action) != 0) return false;
  if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) return false;
  Dl_info where{};
  return dladdr(reinterpret_cast<void*>(action.sa_handler), &where) != 0 &&
         std::string_view(where.dli_fname).find("libucs") != std::string_view::npos;
}

// Whether UCX does so.
bool apply(ucp_config_t* config, const Wish& wish, const char* key) {
  const std::string variable = std::string("UCX_") + wish.key;
  const std::string before = wish.table == Table::kContext ? table_of(config) : "";
  if (ucp_config_modify(config, key, wish.value) != UCS_OK) return false;
  // Transports' tables are read later; tests/comm/ucx_settings_test.cc looks at their effects.
  if (wish.table != Table::kContext) return true;
  const std::string line = line_of(table_of(config), variable);
  return !line.empty() &&
         (line != line_of(before, variable) || line == variable + "=" + wish.value);
}

void make(const Wish& wish, bool rdma, Settings& settings) {
  const bool old = running_version() < std::array<unsigned, 3>{1, 14, 0};
  Setting setting{std::string("UCX_") + wish.key, wish.value, Setting::Source::kGradwire, wish.why};
  const char* key = old ? wish.key_1_13 : wish.key;
  if (const auto said = user_value_of(wish.key)) {
    setting.source = Setting::Source::kUser;
    setting.value = *said;
  } else if (!allowed(wish.table)) {
    setting.source = Setting::Source::kNotWanted;
    setting.why = "UCX_TLS leaves its transport out";
  } else if (wish.tcp_only && rdma) {
    setting.source = Setting::Source::kNotWanted;
    setting.why = "an RDMA device carries the bulk, and does rendezvous better";
  } else if (key == nullptr) {
    setting.source = Setting::Source::kUnknown;
  } else if (!apply(settings.config.get(), wish, key)) {
    setting.source = Setting::Source::kWithoutEffect;
  }
  settings.list.push_back(std::move(setting));
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

// UCX tries whatever is up, bridges of containers too, where nobody answers (until 1.16).
void take_interfaces(Settings& settings, bool by_name) {
  const std::vector<std::string>& taken = settings.devices.taken;
  if (!settings.devices.restricted) return;
  const std::string names = joined(taken);
  const char* const why =
      by_name ? "selected by GRADWIRE_IFNAME, or loopback because all ranks are on this host"
              : "all that are up, but the bridges of this host";
  make({"NET_DEVICES", names.c_str(), "NET_DEVICES", Table::kContext, false, why}, false, settings);
  if (!by_name || taken.size() < 2) return;
  const std::string rails = std::to_string(taken.size());
  constexpr const char* kRails = "several interfaces were asked for: each carries its part";
  for (const char* key : {"MAX_EAGER_RAILS", "MAX_RNDV_RAILS"})
    make({key, rails.c_str(), key, Table::kContext, false, kRails}, false, settings);
}

}  // namespace

std::string printed(const std::function<void(std::FILE*)>& print) {
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* file = open_memstream(&text, &bytes);
  if (file == nullptr) return "";
  print(file);
  std::fclose(file);
  std::string copy(text, bytes);
  std::free(text);
  return copy;
}

Status error(const char* what, ucs_status_t status) {
  return Status(Code::kInternal, format("ucx: %s: %s", what, ucs_status_string(status)));
}

std::string_view to_string(Setting::Source source) {
  switch (source) {
    case Setting::Source::kGradwire: return "gradwire";
    case Setting::Source::kUser: return "environment";
    case Setting::Source::kUnknown: return "unknown to this version";
    case Setting::Source::kNotWanted: return "left alone";
    case Setting::Source::kWithoutEffect: return "without effect";
  }
  return "?";
}

Result<Settings> read_settings(const SettingsOptions& options) {
  Settings settings;
  const std::vector<Device> present = list_devices();
  const bool by_user = user_value("NET_DEVICES").has_value();
  GW_ASSIGN(settings.devices,
            choose_devices(present, by_user ? std::string() : options.interfaces));
  ucp_config_t* config = nullptr;
  if (const auto status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK)
    return error("reading its configuration", status);
  settings.config.reset(config);
  if (options.tcp_alone || options.without_posix) {
    if (user_value("TLS") || (options.tcp_alone && by_user)) {
      return Status(Code::kUnsupported, "ucx: the environment chooses transports or devices");
    }
    const char* const transports = options.tcp_alone ? "tcp,self" : "^posix";
    const ucs_status_t status = ucp_config_modify(config, "TLS", transports);
    if (status != UCS_OK) return error("UCX_TLS", status);
  }
  if (options.without_posix) {
    settings.list.push_back({"UCX_TLS", "^posix", Setting::Source::kGradwire,
                             "/dev/shm has little room, or cannot be written"});
  }
  const bool rdma = std::ranges::any_of(present, [&](const Device& one) {
    return one.kind == Device::Kind::kRdma &&
           std::ranges::find(settings.devices.taken, one.name) != settings.devices.taken.end();
  });
  for (const Wish& wish : kWishes) {
    if (!options.tcp_alone || wish.table != Table::kSharedMemory) make(wish, rdma, settings);
  }
  take_interfaces(settings, !options.interfaces.empty());
  return settings;
}

std::string library_version() {
  const auto [major, minor, patch] = running_version();
  return format("%u.%u.%u", major, minor, patch);
}

void release_signals() {
  if (user_value("HANDLE_ERRORS")) return;
  for (const int number : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) {
    if (is_ucx_handler(number)) ucs_debug_disable_signal(number);
  }
}

}  // namespace gradwire::ucx
