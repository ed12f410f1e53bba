#include "base/files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace gradwire {
namespace {

constexpr mode_t kEverybodyMay = 0666;  // less the process's mask

Status refused(const char* verb, const std::string& path, const std::string& reason) {
  return {Code::kInvalidArgument,
          std::string("cannot ") + verb + " '" + path + "' (" + reason + ")"};
}

// `fd` was opened without waiting, and waits from now on.
Result<File> as_file(int fd, const char* mode, const char* verb, const std::string& path) {
  const int flags = ::fcntl(fd, F_GETFL);
  std::FILE* file =
      flags >= 0 && ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0 ? ::fdopen(fd, mode) : nullptr;
  if (file != nullptr) return File(file);
  const int code = errno;
  ::close(fd);
  return refused(verb, path, std::strerror(code));
}

}  // namespace

Status cannot(const char* verb, const std::string& path, int code) {
  return refused(verb, path, std::strerror(code));
}

// A pipe without a name is a file of the kernel's own file system.
bool is_given_pipe(const std::string& path) {
  struct statfs system {};
  return ::statfs(path.c_str(), &system) == 0 &&
         static_cast<unsigned long>(system.f_type) == PIPEFS_MAGIC;
}

Result<File> open_to_read(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return cannot("read", path, errno);
  struct stat info {};
  std::string reason;
  if (::fstat(fd, &info) != 0) reason = std::strerror(errno);
  if (S_ISDIR(info.st_mode)) reason = std::strerror(EISDIR);
  if (S_ISFIFO(info.st_mode) && !is_given_pipe(path)) reason = "got a FIFO, expected a file";
  if (reason.empty()) return as_file(fd, "rb", "read", path);
  ::close(fd);
  return refused("read", path, reason);
}

Result<File> open_to_write(const std::string& path, WriteFrom from) {
  const bool anew = from == WriteFrom::kBeginning;
  const int fd = ::open(path.c_str(),
                        O_WRONLY | O_CREAT | (anew ? O_TRUNC : O_APPEND) | O_NONBLOCK | O_CLOEXEC,
                        kEverybodyMay);
  if (fd >= 0) return as_file(fd, anew ? "wb" : "ab", "write", path);
  const int code = errno;
  struct stat info {};
  if (code == ENXIO && ::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) {
    return refused("write", path, "got a FIFO without a reader, expected a file");
  }
  return cannot("write", path, code);
}

Status check_readable(const std::string& path) { return open_to_read(path).error(); }

Result<std::string> read_text(const std::string& path) {
  GW_ASSIGN(const File file, open_to_read(path));
  std::string contents;
  std::array<char, 65536> chunk{};
  for (std::size_t got = 1; got > 0;) {
    got = std::fread(chunk.data(), 1, chunk.size(), file.get());
    contents.append(chunk.data(), got);
  }
  if (std::ferror(file.get()) != 0) return cannot("read", path, errno);
  return contents;
}

}  // namespace gradwire
