#include "tests/emulation/queues.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulation/devices.h"
#include "tests/emulation/emulated_device.h"

namespace gradwire::emulation {
namespace {

std::atomic<bool> later = false;

// One for the process; it goes with it, whatever its thread does then.
class Queues {
 public:
  static Queues& all() {
    static auto* const queues = new Queues;
    return *queues;
  }

  template <typename Action>
  auto locked(const Action& action) {
    const std::lock_guard lock(mutex_);
    return action();
  }
  void add(const std::shared_ptr<Queue>& queue) {
    const std::lock_guard lock(mutex_);
    queues_.push_back(queue);
  }
  void remove(const std::shared_ptr<Queue>& queue) {
    std::unique_lock lock(mutex_);
    queue->held = false;
    queue->ends = true;
    await_through(lock, *queue);
    std::erase(queues_, queue);
  }
  void push(const std::shared_ptr<Queue>& queue, QueuedWork work) {
    const std::lock_guard lock(mutex_);
    if (!started_) std::thread([this] { run(); }).detach();
    started_ = true;
    queue->work.push_back(std::move(work));
    changed_.notify_all();
  }
  void hold(const std::shared_ptr<Queue>& queue, bool held) {
    const std::lock_guard lock(mutex_);
    queue->held = held;
    changed_.notify_all();
  }
  // An event has passed: those that waited for one ask again.
  void pass(const std::function<void()>& event) {
    const std::lock_guard lock(mutex_);
    event();
    ++passes_;
    for (const auto& queue : queues_) queue->waits = false;
    changed_.notify_all();
  }
  void hold_apart(bool held) {
    const std::lock_guard lock(mutex_);
    apart_held_ = held;
    changed_.notify_all();
  }
  std::size_t pending_apart() {
    const std::lock_guard lock(mutex_);
    std::size_t pending = 0;
    for (const auto& queue : queues_) {
      if (queue->apart) pending += queue->work.size();
    }
    return pending;
  }
  void tarry(std::chrono::milliseconds before_each) {
    const std::lock_guard lock(mutex_);
    pause_ = before_each;
  }
  void drain(const std::shared_ptr<Queue>& queue) {
    std::unique_lock lock(mutex_);
    await_through(lock, *queue);
  }
  void drain_all_that_wait_for_the_default_stream(int device) {
    std::unique_lock lock(mutex_);
    const std::vector<std::shared_ptr<Queue>> now = queues_;
    for (const auto& queue : now) {
      if (!queue->apart && queue->device == device) await_through(lock, *queue);
    }
  }

 private:
  void await_through(std::unique_lock<std::mutex>& lock, const Queue& queue) {
    changed_.notify_all();
    changed_.wait(lock, [&queue] { return queue.work.empty() && !queue.running; });
  }
  // The next one by turns that has something to do and may.
  std::shared_ptr<Queue> next() {
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      const auto& queue = queues_[++turn_ % queues_.size()];
      if (!is_held(*queue) && !queue->waits && !queue->work.empty()) return queue;
    }
    return nullptr;
  }
  bool is_held(const Queue& queue) const {
    return queue.held || (apart_held_ && queue.apart && !queue.ends);
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      const std::shared_ptr<Queue> queue = next();
      if (queue == nullptr) {
        changed_.wait(lock);
        continue;
      }
      QueuedWork work = std::move(queue->work.front());
      queue->work.pop_front();
      queue->running = true;
      const std::uint64_t passes = passes_;
      const auto pause = pause_;
      lock.unlock();
      std::this_thread::sleep_for(pause);
      const bool done = work();
      std::this_thread::yield();  // who asks meanwhile sees that the rest is not done
      lock.lock();
      queue->running = false;
      if (!done) queue->work.push_front(std::move(work));
      queue->waits = !done && passes == passes_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Queue>> queues_;
  std::size_t turn_ = 0;
  std::uint64_t passes_ = 0;  // of events
  bool started_ = false;
  bool apart_held_ = false;
  std::chrono::milliseconds pause_{0};
};

}  // namespace

void run_later() { later = true; }
void hold(void* stream) { Queues::all().hold(static_cast<CUstream_st*>(stream)->queue, true); }
void release(void* stream) { Queues::all().hold(static_cast<CUstream_st*>(stream)->queue, false); }

void hold_apart(bool held) { Queues::all().hold_apart(held); }
std::size_t pending_apart() { return Queues::all().pending_apart(); }
void tarry(std::chrono::milliseconds before_each) { Queues::all().tarry(before_each); }

CUstream_st* make_stream(bool apart) {
  auto* const stream = new CUstream_st{std::make_shared<Queue>()};
  stream->queue->device = current_device();
  stream->queue->apart = apart;
  Queues::all().add(stream->queue);
  return stream;
}

void destroy_stream(CUstream_st* stream) {
  Queues::all().remove(stream->queue);
  delete stream;
}

void drain(CUstream_st* stream) {
  if (!later) return;
  if (stream != nullptr) return Queues::all().drain(stream->queue);
  Queues::all().drain_all_that_wait_for_the_default_stream(current_device());
}

void enqueue(CUstream_st* stream, std::function<void()> work) {
  if (stream != nullptr && stream->recording) {
    stream->recording->work.push_back(std::move(work));
    return;
  }
  if (later && stream != nullptr) {
    return Queues::all().push(stream->queue, [work = std::move(work)] {
      work();
      return true;
    });
  }
  drain(stream);
  work();
}

void record(CUevent_st* event, CUstream_st* stream) {
  Queues& queues = Queues::all();
  const auto passing = event->passing;
  const std::uint64_t number = queues.locked([&] { return ++passing->recorded; });
  enqueue(stream, [&queues, passing, number] {
    queues.pass([&] {
      passing->passed = std::max(passing->passed, number);
      passing->at = std::chrono::steady_clock::now();
    });
  });
}

void wait_for(CUstream_st* stream, CUevent_st* event) {
  if (!later || stream == nullptr) return;
  Queues& queues = Queues::all();
  const auto passing = event->passing;
  const std::uint64_t number = queues.locked([&] { return passing->recorded; });
  queues.push(stream->queue, [&queues, passing, number] {
    return queues.locked([&] { return passing->passed >= number; });
  });
}

bool has_passed(const CUevent_st* event) {
  return Queues::all().locked([&] { return event->passing->passed == event->passing->recorded; });
}

}  // namespace gradwire::emulation
