#include "apps/train/end_signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "apps/run/verdict.h"
#include "base/text.h"

namespace gradwire {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Around the locks of stdio, which a thread that writes may hold.
void say(const std::string& text) { (void)!::write(STDERR_FILENO, text.data(), text.size()); }

}  // namespace

EndSignals::EndSignals(double seconds) : seconds_(seconds), stop_(::eventfd(0, EFD_CLOEXEC)) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : {SIGINT, SIGTERM}) {
    if (!is_ignored(signal)) sigaddset(&wanted, signal);  // nohup keeps its meaning
  }
  (void)::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
  signals_ = rendezvous::Fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_.valid() && stop_.valid()) {
    thread_ = std::jthread([this] { watch(); });
  } else {  // no descriptors: signals do what they always did
    (void)::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
}

EndSignals::~EndSignals() {
  const std::uint64_t one = 1;
  if (stop_.valid()) (void)!::write(stop_.get(), &one, sizeof one);
  if (!thread_.joinable()) return;
  thread_.join();
  (void)::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

// Until ranks have met, so long as they have after the signal.
int EndSignals::milliseconds_left() const {
  return signal() == 0 || met_ ? -1 : rendezvous::poll_timeout(until_);
}

void EndSignals::watch() {
  std::array<pollfd, 2> fds{pollfd{signals_.get(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
  for (;;) {
    const int left = milliseconds_left();
    (void)::poll(fds.data(), fds.size(), left);
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      take(static_cast<int>(info.ssi_signo));
    }
    if (left == 0 && !met_) {
      end_now(signal(),
              format(": the ranks did not agree on an end within %g s (--deadline), so no "
                     "checkpoint was written",
                     seconds_));
    }
  }
}

void EndSignals::take(int signal) {
  if (!listening_) end_now(signal, "");
  if (repeats_.is_repeat(signal)) return;
  if (signal_ != 0) end_now(signal, ", the second signal");
  until_ = deadline_in(seconds_);
  signal_ = signal;
  say("gradwire: " + signal_text(signal) +
      ": training ends with a checkpoint once all ranks agree; a second signal ends it at once\n");
}

void EndSignals::end_now(int signal, const std::string& why) const {
  say("gradwire: error: train: ended by " + signal_text(signal) + why + "\n");
  std::_Exit(128 + signal);
}

}  // namespace gradwire
