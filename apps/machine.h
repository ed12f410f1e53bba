// Where and with what a figure was measured: goes into every result row and every report.
#pragma once

#include <string>

namespace gradwire {

struct Machine {
  std::string cpu;       // the model's name as the kernel tells it
  int cores = 0;         // that this process may use
  std::string kernel;    // "Linux 6.1.0"
  std::string gradwire;  // version
  std::string
      commit;  // of the checkout that was built, "-dirty" when changed; "unknown" outside git
  std::string compiler;
  std::string ucx;  // version that was compiled against; "none"
};
Machine machine();

// The same as one line for people.
std::string machine_line();

}  // namespace gradwire
