#include "apps/machine.h"

#include <sched.h>
#include <sys/utsname.h>

#include <fstream>

#include "apps/commit.h"
#include "gradwire/version.h"

namespace gradwire {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "unknown";
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

std::string kernel_name() {
  utsname name{};
  return uname(&name) == 0 ? std::string(name.sysname) + " " + name.release : "unknown";
}

}  // namespace

Machine machine() {
  return {
    .cpu = cpu_model(), .cores = usable_cores(), .kernel = kernel_name(),
    .gradwire = GRADWIRE_VERSION, .commit = GRADWIRE_COMMIT,
#if defined(__clang__)
    .compiler = std::string("clang ") + __clang_version__,
#else
    .compiler = std::string("g++ ") + __VERSION__,
#endif
    .ucx = GW_UCX_VERSION
  };
}

std::string machine_line() {
  const Machine m = machine();
  return m.cpu + ", " + std::to_string(m.cores) + (m.cores == 1 ? " core; " : " cores; ") +
         m.kernel + "; gradwire " + m.gradwire + " (" + m.commit + "), " + m.compiler + ", UCX " +
         m.ucx;
}

}  // namespace gradwire
