#include "apps/whole_file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace gradwire {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Status failed(const char* what, const std::string& path) {
  return {Code::kInvalidArgument,
          std::string("cannot ") + what + " '" + path + "' (" + std::strerror(errno) + ")"};
}

}  // namespace

Result<std::string> read_whole_file(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return failed("read", path);
  std::string contents;
  std::array<char, 65536> chunk{};
  for (std::size_t got = 1; got > 0;) {
    got = std::fread(chunk.data(), 1, chunk.size(), file.get());
    contents.append(chunk.data(), got);
  }
  if (std::ferror(file.get()) != 0) return failed("read", path);
  return contents;
}

Status write_whole_file(const std::string& path, std::string_view contents) {
  File file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) return failed("write", path);
  const bool written =
      std::fwrite(contents.data(), 1, contents.size(), file.get()) == contents.size();
  if (!written || std::fclose(file.release()) != 0) return failed("write", path);
  return {};
}

Status replace_whole_file(const std::string& path, std::string_view contents) {
  const std::string fresh = path + ".new";
  File file(std::fopen(fresh.c_str(), "wb"));
  if (file == nullptr) return failed("write", fresh);
  const bool written =
      std::fwrite(contents.data(), 1, contents.size(), file.get()) == contents.size() &&
      std::fflush(file.get()) == 0 && ::fsync(::fileno(file.get())) == 0;
  if (!written || std::fclose(file.release()) != 0) return failed("write", fresh);
  if (std::rename(fresh.c_str(), path.c_str()) != 0) return failed("replace", path);
  return {};
}

}  // namespace gradwire
