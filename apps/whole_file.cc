#include "apps/whole_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/files.h"

namespace gradwire {
namespace {

Status write_from(WriteFrom from, const std::string& path, std::string_view contents) {
  GW_ASSIGN(File file, open_to_write(path, from));
  const bool written =
      std::fwrite(contents.data(), 1, contents.size(), file.get()) == contents.size();
  if (!written || std::fclose(file.release()) != 0) return cannot("write", path, errno);
  return {};
}

}  // namespace

Result<std::string> read_whole_file(const std::string& path) { return read_text(path); }

Status write_whole_file(const std::string& path, std::string_view contents) {
  return write_from(WriteFrom::kBeginning, path, contents);
}

Status append_to_file(const std::string& path, std::string_view contents) {
  return write_from(WriteFrom::kEnd, path, contents);
}

Status replace_whole_file(const std::string& path, std::string_view contents) {
  const std::string fresh = path + ".new";
  GW_ASSIGN(File file, open_to_write(fresh));
  const bool written =
      std::fwrite(contents.data(), 1, contents.size(), file.get()) == contents.size() &&
      std::fflush(file.get()) == 0 && ::fsync(::fileno(file.get())) == 0;
  if (!written || std::fclose(file.release()) != 0) return cannot("write", fresh, errno);
  if (std::rename(fresh.c_str(), path.c_str()) != 0) return cannot("replace", path, errno);
  return {};
}

}  // namespace gradwire
