#include "apps/flight_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "apps/environment.h"
#include "apps/whole_file.h"
#include "comm/rendezvous/socket.h"

namespace gradwire {
namespace {

Status refuse(const std::string& folder, const std::string& why) {
  return {Code::kInvalidArgument, "cannot write flight records to '" + folder + "' (" + why +
                                      "; expected a writable folder)"};
}

std::string orphan_mark(const std::string& folder, int rank) {
  return folder + "/launcher-died-" + std::to_string(rank);
}

}  // namespace

std::string flight_folder(const std::string& flag) {
  return flag.empty() ? environment("GRADWIRE_FLIGHT").value_or("") : flag;
}

// Ranks of a job may do this at the same time, in a folder that they share.
Status check_flight_folder(const std::string& folder) {
  if (folder.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return refuse(folder, error.message());
  const std::string probe = folder + "/.probe-" + std::to_string(::getpid()) + ".part";
  const rendezvous::Fd file(::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!file.valid()) return refuse(folder, std::strerror(errno));
  (void)::unlink(probe.c_str());  // gone already where another host's process has the same number
  return {};
}

void leave_orphan_mark(const std::string& folder, int rank) {
  if (folder.empty()) return;
  (void)write_whole_file(orphan_mark(folder, rank), std::to_string(::getpid()) + "\n");
}

void remove_orphan_mark(const std::string& folder, int rank) {
  if (!folder.empty()) (void)::unlink(orphan_mark(folder, rank).c_str());
}

bool has_orphan_mark(const std::string& folder, int rank, std::int64_t pid) {
  const auto left = read_whole_file(orphan_mark(folder, rank));
  return left.has_value() && left.value() == std::to_string(pid) + "\n";
}

}  // namespace gradwire
