// One program at a time works in a folder.
#pragma once

#include <string>
#include <utility>

#include "gradwire/status.h"

namespace gradwire {

// A lock of the kernel's on a file in the folder, for the object's life; it goes however the
// program ends. The file says who holds it, and is removed with the lock.
class FolderLock {
 public:
  // Takes DIRECTORY/NAME, for which it waits up to `seconds`: what was killed a moment ago may
  // still be ending. kInvalidArgument where another program has it ("'DIRECTORY' is in use by
  // another WHAT (process 12 on host a)"), kUnsupported where the folder cannot be written to or
  // its file system has no locks.
  static Result<FolderLock> take(const std::string& directory, const std::string& name,
                                 const std::string& what, double seconds);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();

 private:
  FolderLock(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::string path_;
};

}  // namespace gradwire
