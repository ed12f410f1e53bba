#include "trainer/checkpoint/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr mode_t kEverybodyMayRead = 0644;

}  // namespace

Status disk_error(std::string_view verb, const std::string& path, int code) {
  return {Code::kInvalidArgument,
          "cannot " + std::string(verb) + " " + path + ": " + std::strerror(code)};
}

Result<DiskFile> DiskFile::create(const std::string& path) {
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kEverybodyMayRead);
  if (descriptor < 0) return disk_error("write", path, errno);
  return DiskFile(descriptor, path);
}

Result<DiskFile> DiskFile::open(const std::string& path) {
  // A FIFO is not waited for: its size() or first read says what it is.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return disk_error("read", path, errno);
  return DiskFile(descriptor, path);
}

DiskFile::DiskFile(DiskFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

DiskFile& DiskFile::operator=(DiskFile&& other) noexcept {
  if (this == &other) return *this;
  close_now();
  descriptor_ = std::exchange(other.descriptor_, -1);
  path_ = std::move(other.path_);
  return *this;
}

DiskFile::~DiskFile() { close_now(); }

void DiskFile::close_now() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Status DiskFile::write(ConstByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return disk_error("write", path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status DiskFile::write(std::string_view text) {
  return write(std::as_bytes(std::span(text.data(), text.size())));
}

Status DiskFile::read(std::uint64_t offset, ByteSpan out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return disk_error("read", path_, errno);
    if (got == 0) {
      return {Code::kCorruptPayload,
              format("%s ends at byte %llu (expected %zu more)", path_.c_str(),
                     static_cast<unsigned long long>(offset), out.size())};
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Result<std::uint64_t> DiskFile::size() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) return disk_error("read", path_, errno);
  if (!S_ISREG(facts.st_mode)) {
    return Status(Code::kInvalidArgument, path_ + " is no regular file");
  }
  return static_cast<std::uint64_t>(facts.st_size);
}

Status DiskFile::finish() {
  if (::fsync(descriptor_) != 0) return disk_error("write", path_, errno);
  const int closed = ::close(std::exchange(descriptor_, -1));
  return closed == 0 ? Status() : disk_error("write", path_, errno);
}

Status sync_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return disk_error("write", path, errno);
  const int synced = ::fsync(descriptor);
  const int code = errno;
  ::close(descriptor);
  // Some file systems cannot sync a folder, and order its changes themselves.
  if (synced == 0 || code == EINVAL) return {};
  return disk_error("write", path, code);
}

}  // namespace gradwire
