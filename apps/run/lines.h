// The ranks' output, line by line, each line whole and with its rank before it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradwire {

// Text on its way to a file descriptor that may be slow: nothing here waits for the reader.
class OutputQueue {
 public:
  explicit OutputQueue(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  bool empty() const { return pending_.empty(); }
  bool closed() const { return error_ != 0; }  // nothing can be written any more
  // Why not, as errno: EPIPE where nobody reads; 0 while it can.
  int error() const { return error_; }
  // So much is pending that what feeds the queue should be left unread.
  bool full() const { return pending_.size() > (std::size_t{1} << 20); }
  void append(std::string_view text) {
    if (!closed()) pending_ += text;
  }
  // Writes what the descriptor takes now. A write that fails (a reader that has gone away, a full
  // disk) ends the queue: what is pending and what comes later is dropped.
  void write_some();

 private:
  int fd_;
  int error_ = 0;
  std::string pending_;
};

// Cuts one stream of one rank into lines "rank R | text", or "text" when `plain`.
class LinePrefixer {
 public:
  static constexpr std::size_t kMaxLine = 65536;  // a longer line goes out in pieces

  LinePrefixer(int rank, OutputQueue& out, bool plain = false);
  void feed(std::string_view bytes);
  // The stream has ended: a last line without its newline gets one.
  void finish();
  // The latest line that says "gradwire: error: ", without these words; "" while there is none.
  const std::string& last_error() const { return last_error_; }

 private:
  void emit();

  std::string prefix_;
  OutputQueue& out_;
  std::string line_;
  std::string last_error_;
};

}  // namespace gradwire
