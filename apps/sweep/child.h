// A child process that writes to a log file and is ended when nobody waits for it any more.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

class Child {
 public:
  // Starts argv[0] (a path) with standard output and error in `log_path`, in a process group of its
  // own, with these variables added to its environment.
  static Result<Child> start(const std::vector<std::string>& argv, const std::string& log_path,
                             const std::map<std::string, std::string>& environment = {});
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();  // ends the process group (SIGTERM, 3 s later SIGKILL) when it still runs

  // The exit status, 128 + signal for a killed child; nullopt while it runs. Never blocks.
  std::optional<int> poll();
  void end();
  // Once it has ended: the memory of the largest of its processes, in bytes.
  std::uint64_t peak_bytes() const { return peak_bytes_; }

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
  std::uint64_t peak_bytes_ = 0;
};

}  // namespace gradwire
