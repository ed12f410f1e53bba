#include "apps/launcher_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "apps/flight_folder.h"
#include "base/text.h"
#include "comm/rendezvous/socket.h"

namespace gradwire {
namespace {

using rendezvous::Fd;

constexpr auto kToEnd = std::chrono::seconds(1);

class PidfdWatch final : public LauncherWatch {
 public:
  PidfdWatch(Fd launcher, Fd stop, Communicator& communicator, std::string flight)
      : launcher_(std::move(launcher)),
        stop_(std::move(stop)),
        communicator_(communicator),
        flight_(std::move(flight)),
        thread_([this] { watch(); }) {}
  ~PidfdWatch() override {
    const std::uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
  }

 private:
  void watch() {
    std::array<pollfd, 2> fds{pollfd{launcher_.get(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
    while (fds[0].revents == 0 && fds[1].revents == 0) (void)::poll(fds.data(), fds.size(), -1);
    if (fds[1].revents != 0) return;
    // Waiting calls have so long to say its error, and what follows here to return.
    std::thread([] {
      std::this_thread::sleep_for(kToEnd);
      std::_Exit(1);
    }).detach();
    std::fputs("gradwire: error: the launcher died\n", stderr);
    leave_orphan_mark(flight_, communicator_.job_rank(communicator_.rank()));
    communicator_.abort("the launcher has died");
  }

  Fd launcher_;
  Fd stop_;
  Communicator& communicator_;
  std::string flight_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace

std::unique_ptr<LauncherWatch> LauncherWatch::start(const std::string& launcher,
                                                    Communicator& communicator,
                                                    const std::string& flight) {
  remove_orphan_mark(flight, communicator.job_rank(communicator.rank()));
  const auto pid = to_int(launcher);
  if (!pid || *pid <= 1) return nullptr;
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(*pid), 0)));
  Fd stop(::eventfd(0, EFD_CLOEXEC));
  if (!process.valid() || !stop.valid()) return nullptr;
  // The launcher has its ranks killed when it dies; this one wants to have the last word. A reader
  // that is gone is not worth dying for either.
  (void)::prctl(PR_SET_PDEATHSIG, 0);
  (void)::signal(SIGPIPE, SIG_IGN);
  return std::make_unique<PidfdWatch>(std::move(process), std::move(stop), communicator, flight);
}

}  // namespace gradwire
