// Room in /dev/shm, where UCX's transport posix keeps the queues into which ranks of a host write:
// some MiB for each of them.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace gradwire::ucx {

struct SharedRoom {
  bool writable = false;
  std::uint64_t free_bytes = 0;
  std::uint64_t all_bytes = 0;

  // Too little for the ranks of a large host.
  bool little() const { return !writable || free_bytes < std::uint64_t{1} << 30; }
};
SharedRoom shared_room();

// "/dev/shm has 3 of 64 MiB free" and what can be done about it.
std::string to_text(const SharedRoom& room);

// While it lives UCX logs nothing but what is fatal. The level is the process's: one at a time
// lowers it, or a second would take the lowered one for what is to be restored.
class QuietLog {
 public:
  explicit QuietLog(bool quiet);
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
  ~QuietLog();

 private:
  std::unique_lock<std::mutex> alone_;
  std::string level_;  // before; "": nothing was changed
};

}  // namespace gradwire::ucx
