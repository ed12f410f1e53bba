// Files and folders that survive the power cord: what was synced is there, and a rename is seen as
// a whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// A file open for reading or writing. kInvalidArgument with the path and the system's reason for
// everything that fails.
class DiskFile {
 public:
  // Must not be there yet.
  static Result<DiskFile> create(const std::string& path);
  static Result<DiskFile> open(const std::string& path);
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&& other) noexcept;
  ~DiskFile();

  Status write(ConstByteSpan bytes);
  Status write(std::string_view text);
  // Bytes [offset, offset + out.size()); fewer there is an error.
  Status read(std::uint64_t offset, ByteSpan out) const;
  Result<std::uint64_t> size() const;
  // On return all that was written is on the disk; the file is closed.
  Status finish();

  const std::string& path() const { return path_; }

 private:
  DiskFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  void close_now();

  int descriptor_ = -1;
  std::string path_;
};

// "cannot VERB PATH: REASON" with the reason of errno value `code`.
Status disk_error(std::string_view verb, const std::string& path, int code);

// What was made, renamed or removed in the folder is on the disk on return.
Status sync_folder(const std::string& path);

}  // namespace gradwire
