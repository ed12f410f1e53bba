#include "comm/process_state.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <string>

namespace gradwire::comm {

std::string process_space() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> name{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", name.data(), name.size() - 1);
  if (boot.empty() || length <= 0) return "-";
  return boot + "/" + std::string(name.data(), static_cast<std::size_t>(length));
}

bool shares_processes(const std::string& other_space) {
  return other_space != "-" && other_space == process_space();
}

// /proc/PID/stat: number, (name), state letter.
bool has_ended_or_stopped(pid_t pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const std::size_t name_end = line.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return false;
  return std::string("TtZXx").find(line[name_end + 2]) != std::string::npos;
}

}  // namespace gradwire::comm
