// Files that a flag or a variable names. Opening one never waits: a FIFO or a folder that stands in
// its place is an error.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "gradwire/status.h"

namespace gradwire {

struct CloseFile {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Why a path cannot be read or written: `code` is errno's.
Status cannot(const char* verb, const std::string& path, int code);

// From its beginning. A pipe is read where the process was given it (/dev/stdin, the shell's
// <(...)), not where it has a name of its own: whether anybody will ever write there, nobody knows.
// kInvalidArgument: "cannot read 'PATH' (REASON)".
Result<File> open_to_read(const std::string& path);

enum class WriteFrom : unsigned char { kBeginning, kEnd };
// What was there is emptied, or written after. A FIFO is written to where somebody reads it.
// kInvalidArgument: "cannot write 'PATH' (REASON)".
Result<File> open_to_write(const std::string& path, WriteFrom from = WriteFrom::kBeginning);

// Status of open_to_read() without keeping the file open: for readers of other libraries.
Status check_readable(const std::string& path);

// Whether `path` is a pipe that this process was given, like the shell's >(...), and no FIFO of
// the file system's.
bool is_given_pipe(const std::string& path);

// All of it; errors as open_to_read().
Result<std::string> read_text(const std::string& path);

}  // namespace gradwire
