#include "apps/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBetween = std::chrono::milliseconds(20);

std::string holder_text() {
  std::array<char, 256> host{};
  const bool known = ::gethostname(host.data(), host.size() - 1) == 0;
  return format("process %lld on host %s", static_cast<long long>(::getpid()),
                known ? host.data() : "unknown");
}

// What the holder wrote; it may be writing.
std::string holder_of(int fd) {
  std::array<char, 400> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size() - 1, 0);
  return size > 0 ? text.data() : "unknown";
}

// A file that its holder has removed meanwhile locks nobody out.
bool is_there(int fd, const std::string& path) {
  struct stat held {};
  struct stat named {};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace

Result<FolderLock> FolderLock::take(const std::string& directory, const std::string& name,
                                    const std::string& what, double seconds) {
  const std::string path = directory + "/" + name;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    FolderLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644), {});
    if (lock.fd_ < 0) {
      return Status(Code::kUnsupported,
                    "cannot write '" + path + "' (" + std::strerror(errno) + ")");
    }
    const bool locked = ::flock(lock.fd_, LOCK_EX | LOCK_NB) == 0;
    const int error = locked ? 0 : errno;
    if (locked && is_there(lock.fd_, path)) {
      lock.path_ = path;
      const std::string holder = holder_text();
      (void)!::ftruncate(lock.fd_, 0);
      (void)!::pwrite(lock.fd_, holder.data(), holder.size(), 0);
      return lock;
    }
    if (!locked && error != EWOULDBLOCK && error != EINTR) {
      return Status(Code::kUnsupported,
                    "cannot lock '" + path + "' (" + std::strerror(error) + ")");
    }
    if (Clock::now() >= until) {
      return Status(Code::kInvalidArgument, "'" + directory + "' is in use by another " + what +
                                                " (" + holder_of(lock.fd_) + ")");
    }
    std::this_thread::sleep_for(kBetween);
  }
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::exchange(other.path_, {})) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

FolderLock::~FolderLock() {
  if (!path_.empty()) (void)::unlink(path_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace gradwire
