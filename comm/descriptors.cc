#include "comm/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "base/text.h"

namespace gradwire::comm {
namespace {

// Files that come and go besides: stores, /proc, strangers' connections.
constexpr std::size_t kBesides = 16;
// So far at once: connections come later, and other transports of this process ask too.
constexpr rlim_t kGenerous = 65536;

// Of at most so many. To look takes one, too.
std::size_t open_now(std::size_t most) {
  std::error_code none;
  const std::filesystem::directory_iterator files("/proc/self/fd", none);
  if (none == std::errc::too_many_files_open) return most;
  const auto count = static_cast<std::size_t>(std::distance(begin(files), end(files)));
  return count - std::min<std::size_t>(count, 1);  // the folder itself
}

}  // namespace

Status make_room_for_descriptors(std::size_t more, std::string_view what) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};  // opening too many fails by itself
  const std::size_t open = open_now(limit.rlim_cur);
  const rlim_t wanted = open + more + kBesides;
  rlimit raised = limit;
  raised.rlim_cur = std::min(limit.rlim_max, std::max(wanted, kGenerous));
  const bool higher = raised.rlim_cur > limit.rlim_cur;
  const bool enough = std::max(raised.rlim_cur, limit.rlim_cur) >= wanted;
  if (enough && (!higher || setrlimit(RLIMIT_NOFILE, &raised) == 0)) return {};
  if (limit.rlim_cur >= wanted) return {};
  return {
      Code::kUnsupported,
      format("%.*s: needs %llu file descriptors (%zu are open), %llu allowed and at most %llu "
             "obtainable (RLIMIT_NOFILE; raise it with ulimit -Hn, LimitNOFILE= of systemd or "
             "docker run --ulimit nofile=N, or use fewer ranks per job)",
             static_cast<int>(what.size()), what.data(), static_cast<unsigned long long>(wanted),
             open, static_cast<unsigned long long>(limit.rlim_cur),
             static_cast<unsigned long long>(limit.rlim_max))};
}

}  // namespace gradwire::comm
