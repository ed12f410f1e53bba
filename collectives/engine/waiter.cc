#include "collectives/engine/waiter.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace gradwire {
namespace {

using std::chrono::milliseconds;

// While memory alone is waited for, the transport is looked at this often (heartbeats, losses);
// a device is always looked at, since nobody says when it has finished.
constexpr milliseconds kAtBellAlone{50};
constexpr milliseconds kForDevice{1};

}  // namespace

// A thread that sleeps at the bell while the driver sleeps in the transport, and wakes it there: no
// system call waits for a futex and for descriptors.
class Waiter::Relay {
 public:
  explicit Relay(std::shared_ptr<shm::Bell> bell)
      : bell_(std::move(bell)), thread_([this] { run(); }) {}
  ~Relay() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      armed_.notify_one();
    }
    bell_->ring();
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Wakes the transport when somebody rings after `seen`, or nearly at `until`.
  void arm(Transport& transport, std::uint32_t seen, Deadline until) {
    const std::lock_guard lock(mutex_);
    transport_ = &transport;
    seen_ = seen;
    until_ = until;
    armed_.notify_one();
  }
  // Does not touch the transport any more.
  void disarm() {
    {
      const std::lock_guard lock(mutex_);
      transport_ = nullptr;
      if (!at_bell_) return;
    }
    bell_->ring();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (transport_ == nullptr) {
        armed_.wait(lock);
        continue;
      }
      const std::uint32_t seen = seen_;
      const Deadline until = until_;
      at_bell_ = true;
      lock.unlock();
      bell_->sleep(seen, until);
      lock.lock();
      at_bell_ = false;
      // Of another sleep than that which began here: its seen_ says whether it has been rung for.
      if (transport_ == nullptr || seen_ != seen) continue;
      transport_->wake();
      transport_ = nullptr;
    }
  }

  std::shared_ptr<shm::Bell> bell_;
  std::mutex mutex_;
  std::condition_variable armed_;
  Transport* transport_ = nullptr;  // to be woken
  std::uint32_t seen_ = 0;
  Deadline until_{};
  bool at_bell_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

Waiter::Waiter() = default;
Waiter::~Waiter() = default;

// place_ is set before the last look for news, and read after whatever is news was written: so
// either the look sees it, or its writer wakes this thread.
Status Waiter::sleep(Transport& transport, const Awaited& awaited, Deadline until,
                     const std::function<bool()>& has_news) {
  if (awaited.nothing) return {};
  const bool at_bell = bell_ && awaited.memory && !awaited.messages && !awaited.device;
  const bool relayed = bell_ && awaited.memory && !at_bell;
  const Deadline now = std::chrono::steady_clock::now();
  if (at_bell) until = std::min(until, now + kAtBellAlone);
  if (awaited.device) until = std::min(until, now + kForDevice);
  const std::uint32_t seen = at_bell || relayed ? bell_->lie_down() : 0;
  Status status;
  place_ = at_bell ? Place::kAtBell : Place::kAtTransport;
  if (!has_news()) {
    if (at_bell) {
      bell_->sleep(seen, until);
    } else {
      if (relayed && relay_ == nullptr) relay_ = std::make_unique<Relay>(bell_);
      if (relayed) relay_->arm(transport, seen, until);
      status = transport.wait(until);
      if (relayed) relay_->disarm();
    }
  }
  place_ = Place::kAwake;
  if (at_bell || relayed) bell_->get_up();
  return status;
}

void Waiter::wake(Transport& transport) {
  switch (place_.exchange(Place::kAwake)) {
    case Place::kAwake: break;
    case Place::kAtTransport: transport.wake(); break;
    case Place::kAtBell: bell_->ring(); break;
  }
}

}  // namespace gradwire
