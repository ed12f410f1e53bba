#include "trainer/data/file_bytes.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/files.h"
#include "base/text.h"

namespace gradwire {
namespace {

struct Close {
  void operator()(gzFile file) const { gzclose_r(file); }
};
using OpenFile = std::unique_ptr<gzFile_s, Close>;

Status damaged(const std::string& path, gzFile file) {
  int code = Z_OK;
  const char* why = gzerror(file, &code);
  if (code == Z_ERRNO) why = std::strerror(errno);
  if (code == Z_BUF_ERROR) why = "the file ends in the middle of its gzip stream";
  return Status(Code::kCorruptPayload, format("%s: %s", path.c_str(), why));
}

}  // namespace

Result<std::vector<std::uint8_t>> read_file_bytes(const std::string& path, std::size_t max_bytes) {
  GW_TRY(check_readable(path));
  const OpenFile file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) {
    return Status(Code::kInvalidArgument,
                  format("cannot open %s: %s", path.c_str(), std::strerror(errno)));
  }
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  std::vector<std::uint8_t> bytes;
  for (;;) {
    const std::size_t have = bytes.size();
    // One byte more than allowed, to tell a full file from one that is too long.
    const std::size_t want = std::min(kPiece, max_bytes + 1 - have);
    bytes.resize(have + want);
    const int got = gzread(file.get(), bytes.data() + have, static_cast<unsigned>(want));
    int code = Z_OK;
    gzerror(file.get(), &code);
    // A stream that ends early gives what it has and says so in the code alone.
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) return damaged(path, file.get());
    bytes.resize(have + static_cast<std::size_t>(got));
    if (bytes.size() > max_bytes) {
      return Status(Code::kCorruptPayload,
                    format("%s: more than %zu bytes of contents (expected at most that many)",
                           path.c_str(), max_bytes));
    }
    if (got == 0) return bytes;
  }
}

}  // namespace gradwire
