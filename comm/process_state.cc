#include "comm/process_state.h"

#include <signal.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

namespace gradwire::comm {
namespace {

// A process whose first thread has returned is called a zombie while its other threads go on.
bool has_other_threads(pid_t pid) {
  std::error_code gone;
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", gone);
  return !gone && std::distance(begin(threads), end(threads)) > 1;
}

}  // namespace

std::string boot_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

std::string name_space(const char* kind) {
  std::error_code none;
  return std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind, none).string();
}

std::string process_space() {
  const std::string boot = boot_id(), space = name_space("pid");
  return boot.empty() || space.empty() ? "-" : boot + "/" + space;
}

// /proc/PID/stat: number, (name), state letter.
bool has_ended_or_stopped(pid_t pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const std::size_t name_end = line.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return false;
  const char state = line[name_end + 2];
  if (state == 'Z') return !has_other_threads(pid);
  return std::string("TtXx").find(state) != std::string::npos;
}

}  // namespace gradwire::comm
