#include "comm/ucx/shared_room.h"

#include <sys/statvfs.h>
#include <ucs/config/global_opts.h>
#include <unistd.h>

#include <array>

#include "base/text.h"

namespace gradwire::ucx {
namespace {

constexpr const char* kFolder = "/dev/shm";

}  // namespace

SharedRoom shared_room() {
  SharedRoom room;
  struct statvfs facts {};
  if (::statvfs(kFolder, &facts) != 0) return room;
  room.writable = (facts.f_flag & ST_RDONLY) == 0 && ::access(kFolder, W_OK) == 0;
  room.free_bytes = std::uint64_t{facts.f_bavail} * facts.f_frsize;
  room.all_bytes = std::uint64_t{facts.f_blocks} * facts.f_frsize;
  return room;
}

std::string to_text(const SharedRoom& room) {
  const std::string state = room.writable
                                ? format("%s has %llu of %llu MiB free", kFolder,
                                         static_cast<unsigned long long>(room.free_bytes >> 20),
                                         static_cast<unsigned long long>(room.all_bytes >> 20))
                                : std::string(kFolder) + " cannot be written";
  return state +
         " (expected some MiB per rank: docker run --shm-size=1g or --ipc=host; or use "
         "UCX_TLS=^posix, or the transport tcp)";
}

QuietLog::QuietLog(bool quiet) {
  if (!quiet) return;
  static std::mutex of_the_level;
  alone_ = std::unique_lock(of_the_level);
  std::array<char, 32> level{};
  if (ucs_global_opts_get_value("LOG_LEVEL", level.data(), level.size()) != UCS_OK) return;
  if (ucs_global_opts_set_value("LOG_LEVEL", "fatal") == UCS_OK) level_ = level.data();
}

QuietLog::~QuietLog() {
  if (!level_.empty()) (void)ucs_global_opts_set_value("LOG_LEVEL", level_.c_str());
}

}  // namespace gradwire::ucx
