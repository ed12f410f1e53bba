#include "apps/sweep/stop_notice.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>

namespace gradwire {
namespace {

// What the handler may touch: written before the handler is installed.
std::array<char, 4096> notice;
volatile std::sig_atomic_t notice_bytes = 0;

extern "C" void say_and_end(int signal) {
  (void)!::write(STDERR_FILENO, notice.data(), static_cast<std::size_t>(notice_bytes));
  std::signal(signal, SIG_DFL);
  (void)std::raise(signal);
}

}  // namespace

StopNotice::StopNotice(const std::string& text) : active_(!text.empty()) {
  if (!active_) return;
  const std::string line = "\n" + text.substr(0, notice.size() - 2) + "\n";
  std::copy(line.begin(), line.end(), notice.begin());
  notice_bytes = static_cast<std::sig_atomic_t>(line.size());
  for (const int signal : {SIGINT, SIGTERM}) {
    if (std::signal(signal, say_and_end) == SIG_IGN)
      std::signal(signal, SIG_IGN);  // as under nohup
  }
}

StopNotice::~StopNotice() {
  if (!active_) return;
  for (const int signal : {SIGINT, SIGTERM}) {
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

}  // namespace gradwire
