#include "tests/emulation/queues.h"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/emulation/default_stream.h"
#include "tests/emulation/devices.h"
#include "tests/emulation/emulated_device.h"
#include "tests/emulation/emulated_memory.h"
#include "tests/emulation/words.h"

namespace gradwire::emulation {
namespace {

thread_local int uncounted = 0;

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;
using QueuePointer = std::shared_ptr<Queue>;

constexpr std::chrono::milliseconds kLazyWait(10);  // for somebody who asks
constexpr std::chrono::microseconds kMoment(500);
constexpr std::chrono::seconds kAmple(10);
constexpr std::uint64_t kLongestDelay = 300;  // microseconds
constexpr std::uint64_t kEager = 6;           // one stream in so many does not wait to be asked
constexpr std::uint64_t kDelayed = 8;         // one of its works in so many begins later
constexpr std::uint64_t kPiecesOfAMood = 16;  // after which a stream may be lazy, or not

// Work that may wait for what another stream's does: on a thread of its stream's alone.
struct Blocking {
  std::function<void()> work;
  void operator()() const { work(); }
};
// Work that can begin when the word is not 0, and does nothing.
struct WordWait {
  const std::uint32_t* word;
  void operator()() const {}
};
bool is_blocking(const Piece& piece) { return piece.work.target<Blocking>() != nullptr; }

// One for the process; it goes with it, whatever its threads do then. A child has another one:
// threads stay behind in the parent, and so does what a device was doing.
class Queues {
 public:
  static Queues& all() {
    static const int watched = ::pthread_atfork(nullptr, nullptr, [] { own() = new Queues; });
    static_cast<void>(watched);
    return *own();
  }

  QueuePointer make(int device, bool apart) {
    const Lock lock(mutex_);
    return make_locked(device, apart);
  }
  QueuePointer default_of(int device) {
    const Lock lock(mutex_);
    QueuePointer& found = defaults_[device];
    if (found == nullptr) found = make_locked(device, false);
    return found;
  }
  void end(const QueuePointer& queue) {
    const Lock lock(mutex_);
    queue->held = false;
    queue->ends = true;
    queue->changed.notify_all();
    if (!queue->served && !queue->busy && queue->pieces.empty()) std::erase(queues_, queue);
  }
  std::shared_ptr<Point> push(const QueuePointer& queue, std::function<void()> work,
                              std::shared_ptr<Point> behind, std::function<void()> before) {
    const bool at_once = before && is_idle(queue);
    if (at_once) before();
    const Lock lock(mutex_);
    if (before && !at_once) {
      const bool slow = queue->chance.one_in(kDelayed);
      work = [before = std::move(before), then = std::move(work), slow] {
        before();
        if (slow) std::this_thread::yield();
        then();
      };
    }
    Piece piece = make_piece(queue, std::move(behind));
    piece.work = std::move(work);
    append(queue, std::move(piece));
    return queue->last;
  }
  void wait_for_word(const QueuePointer& queue, const std::uint32_t* word) {
    const Lock lock(mutex_);
    Piece piece = make_piece(queue, nullptr);
    piece.work = WordWait{word};
    append(queue, std::move(piece));
  }
  void set_word(std::uint32_t* word) {
    const Lock lock(mutex_);
    *word = 1;
    wake_all();
  }
  bool draw_wait(const QueuePointer& queue) {
    const Lock lock(mutex_);
    return queue->chance.one_in(2) && comes_to(*queue, queue->pushed);
  }
  void hold(const QueuePointer& queue, bool held) {
    const Lock lock(mutex_);
    queue->held = held;
    queue->changed.notify_all();
  }
  void hold_apart(bool held) {
    const Lock lock(mutex_);
    apart_held_ = held;
    wake_all();
  }
  std::size_t pending_apart(bool held_alone) {
    const Lock lock(mutex_);
    std::size_t pending = 0;
    for (const QueuePointer& queue : queues_) {
      if (queue->apart && (!held_alone || is_stopped(*queue))) pending += queue->pieces.size();
    }
    return pending;
  }
  void tarry(std::chrono::milliseconds before_each) {
    const Lock lock(mutex_);
    pause_ = before_each;
  }
  bool has_passed(const std::shared_ptr<Point>& point) {
    if (point == nullptr) return true;
    Lock lock(mutex_);
    if (!Uncounted::here() && !std::exchange(point->asked, true)) ++points_asked_;
    want(*point);
    help(lock, *point);
    // A thread that naps between its questions would miss the end by as long.
    if (is_running(*point)) passed_.wait_for(lock, kMoment, [&] { return point->passed; });
    return point->passed;
  }
  std::size_t points_asked() {
    const Lock lock(mutex_);
    return points_asked_;
  }
  Clock::time_point time_of(const std::shared_ptr<Point>& point) {
    const Lock lock(mutex_);
    return point == nullptr ? Clock::time_point() : point->at;
  }
  void drain(const QueuePointer& queue) {
    Lock lock(mutex_);
    const std::shared_ptr<Point> last = queue->last;
    want(*last);
    help(lock, *last);
    passed_.wait(lock, [&] { return last->passed; });
  }
  void drain_all() {
    Lock lock(mutex_);
    for (const QueuePointer& queue : queues_) want(*queue->last);
    for (const QueuePointer& queue : queues_) have_served(queue);
    passed_.wait_for(lock, kAmple, [&] {
      return std::ranges::all_of(queues_, [&](const QueuePointer& queue) {
        return queue->last->passed || (!queue->busy && waits_for_held(*queue));
      });
    });
  }

 private:
  static Queues*& own() {
    static auto* queues = new Queues;
    return queues;
  }
  QueuePointer make_locked(int device, bool apart) {
    queues_.push_back(std::make_shared<Queue>(device, apart, ++made_));
    return queues_.back();
  }
  Piece make_piece(const QueuePointer& queue, std::shared_ptr<Point> behind) {
    Piece piece;
    piece.end = std::make_shared<Point>(Point{.queue = queue, .number = ++queue->pushed});
    if (behind != nullptr && !behind->passed) piece.after.push_back(std::move(behind));
    if (!queue->apart) wait_beside_default(*queue, piece);
    piece.begins = Clock::now();
    if (queue->pushed % kPiecesOfAMood == 1) queue->lazy = !queue->chance.one_in(kEager);
    if (queue->lazy) {
      piece.begins += kLazyWait;
    } else if (queue->chance.one_in(kDelayed)) {
      piece.begins += std::chrono::microseconds(queue->chance.below(kLongestDelay));
    }
    return piece;
  }
  void append(const QueuePointer& queue, Piece piece) {
    queue->last = piece.end;
    queue->pieces.push_back(std::move(piece));
    if (queue->lazy) {
      look_later();
    } else {
      have_served(queue);
    }
  }
  // As CUDA's default stream, called the legacy one, and the others wait for each other.
  void wait_beside_default(const Queue& queue, Piece& piece) {
    const auto found = defaults_.find(queue.device);
    if (found == defaults_.end()) return;
    const auto add = [&](const Queue& other) {
      if (!other.last->passed) piece.after.push_back(other.last);
    };
    if (found->second.get() != &queue) return add(*found->second);
    for (const QueuePointer& other : queues_) {
      if (!other->apart && other->device == queue.device && other.get() != &queue) add(*other);
    }
  }
  bool is_idle(const QueuePointer& queue) {
    const Lock lock(mutex_);
    Piece next;
    if (!queue->apart) wait_beside_default(*queue, next);
    return queue->last->passed && !is_held(*queue) && next.after.empty();
  }
  // Whether what ends there, or something before it, has begun and waits for no other stream.
  static bool is_running(const Point& point) {
    if (point.passed) return false;
    const QueuePointer queue = point.queue.lock();
    return queue != nullptr && queue->busy && !queue->blocked;
  }
  bool is_held(const Queue& queue) const {
    return queue.held || (apart_held_ && queue.apart && !queue.ends);
  }
  // A word is read when the stream has come to it, whatever it was before.
  static bool waits_for_its_word(const Piece& piece) {
    const auto* const wait = piece.work.target<WordWait>();
    return wait != nullptr && *wait->word == 0;
  }
  bool is_stopped(const Queue& queue) const {
    return is_held(queue) || (!queue.pieces.empty() && waits_for_its_word(queue.pieces.front()));
  }
  static bool all_passed(const Piece& piece) {
    return !waits_for_its_word(piece) &&
           std::ranges::all_of(piece.after, [](const auto& point) { return point->passed; });
  }
  bool waits_for_held(const Queue& queue) const {
    if (is_stopped(queue)) return true;
    if (queue.pieces.empty()) return false;
    return std::ranges::any_of(queue.pieces.front().after, [&](const auto& point) {
      const QueuePointer other = point->passed ? nullptr : point->queue.lock();
      return other != nullptr && !other->busy && waits_for_held(*other);
    });
  }
  // Whether nothing up to the piece of that number waits for a test, or for another stream's work.
  bool comes_to(const Queue& queue, std::uint64_t number) const {
    if (is_held(queue) || queue.blocked) return false;
    return std::ranges::all_of(queue.pieces, [&](const Piece& piece) {
      if (piece.end->number > number) return true;
      if (is_blocking(piece) || waits_for_its_word(piece)) return false;
      return std::ranges::all_of(piece.after, [&](const auto& point) {
        const QueuePointer other = point->passed ? nullptr : point->queue.lock();
        return other == nullptr || comes_to(*other, point->number);
      });
    });
  }
  // Asks for the piece that ends there and all that it waits for.
  void want(const Point& point) {
    if (point.passed) return;
    const QueuePointer queue = point.queue.lock();
    if (queue == nullptr || queue->wanted >= point.number) return;
    const std::uint64_t before = std::exchange(queue->wanted, point.number);
    for (const Piece& piece : queue->pieces) {
      if (piece.end->number > point.number) break;
      if (piece.end->number <= before) continue;
      for (const auto& other : piece.after) want(*other);
    }
    queue->changed.notify_all();
  }
  // Runs, on the thread that asks, what comes before the point and can run now: nobody has to wait
  // for a thread of the stream's then. The rest is left to such a thread.
  void help(Lock& lock, const Point& point) {
    while (!point.passed) {
      const QueuePointer queue = point.queue.lock();
      if (queue == nullptr || queue->busy || queue->pieces.empty()) return;
      const Piece& next = queue->pieces.front();
      const std::uint64_t number = next.end->number;
      const auto after = next.after;
      for (const auto& other : after) help(lock, *other);
      if (queue->busy || queue->pieces.empty()) continue;
      if (queue->pieces.front().end->number != number) continue;
      const bool can = !is_held(*queue) && all_passed(queue->pieces.front()) &&
                       !is_blocking(queue->pieces.front()) && pause_.count() == 0;
      if (!can) return have_served(queue);
      const TouchDevices here;
      const ServeDevice device(queue->device);
      run_next(lock, *queue);
    }
  }
  // A thread that sees to it that lazy streams run in the end what nobody asks for.
  void look_later() {
    looks_due_ = true;
    if (!looking_) std::thread([this] { look(); }).detach();
    looking_ = true;
    look_.notify_one();
  }
  [[noreturn]] void look() {
    Lock lock(mutex_);
    while (true) {
      look_.wait(lock, [&] { return looks_due_; });
      looks_due_ = false;
      lock.unlock();
      std::this_thread::sleep_for(kLazyWait);
      lock.lock();
      for (const QueuePointer& queue : queues_) {
        if (!queue->pieces.empty()) have_served(queue);
      }
    }
  }
  void have_served(const QueuePointer& queue) {
    if (queue->served || queue->pieces.empty()) return;
    queue->served = true;
    unserved_.push_back(queue);
    if (idle_ >= unserved_.size()) {
      more_.notify_one();
    } else {
      std::thread([this] { work(); }).detach();
    }
  }
  void wake_all() {
    for (const QueuePointer& queue : queues_) queue->changed.notify_all();
  }

  // What each thread does: one stream after the other, each until it has nothing to do.
  [[noreturn]] void work() {
    let_thread_touch_devices();
    Lock lock(mutex_);
    while (true) {
      ++idle_;
      more_.wait(lock, [&] { return !unserved_.empty(); });
      --idle_;
      const QueuePointer queue = std::move(unserved_.front());
      unserved_.pop_front();
      serve_device(queue->device);
      while (!queue->pieces.empty()) {
        if (may_begin(lock, *queue)) run_next(lock, *queue);
      }
      queue->served = false;
      if (queue->ends && !queue->busy) std::erase(queues_, queue);
    }
  }
  // Else it has waited, and is to be asked again.
  bool may_begin(Lock& lock, Queue& queue) {
    const Piece& next = queue.pieces.front();
    if (queue.busy || is_held(queue) || !all_passed(next)) {
      queue.changed.wait(lock);
      return false;
    }
    if (queue.wanted >= next.end->number || Clock::now() >= next.begins) return true;
    queue.changed.wait_until(lock, Clock::time_point(next.begins));
    return false;
  }
  void run_next(Lock& lock, Queue& queue) {
    Piece piece = std::move(queue.pieces.front());
    queue.pieces.pop_front();
    queue.busy = true;
    queue.blocked = is_blocking(piece);
    const auto pause = pause_;
    lock.unlock();
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    if (piece.work) piece.work();
    piece.work = nullptr;  // what it holds goes, which may call the runtime
    lock.lock();
    queue.busy = false;
    piece.end->passed = true;
    piece.end->at = Clock::now();
    passed_.notify_all();
    queue.changed.notify_all();
    for (const QueuePointer& other : queues_) {
      if (!other->served || other->busy || other->pieces.empty()) continue;
      if (!other->pieces.front().after.empty()) other->changed.notify_all();
    }
    if (queue.ends && !queue.served && queue.pieces.empty()) {
      std::erase_if(queues_, [&](const QueuePointer& one) { return one.get() == &queue; });
    }
  }

  std::mutex mutex_;
  std::condition_variable passed_;  // of any point
  std::condition_variable more_;    // unserved
  std::condition_variable look_;
  bool looking_ = false;    // a thread is there
  bool looks_due_ = false;  // something lazy has been enqueued
  std::vector<QueuePointer> queues_;
  std::map<int, QueuePointer> defaults_;
  std::deque<QueuePointer> unserved_;
  std::size_t idle_ = 0;  // threads
  std::uint64_t made_ = 0;
  bool apart_held_ = false;
  std::chrono::milliseconds pause_{0};
  std::size_t points_asked_ = 0;
};

QueuePointer queue_of(CUstream_st* stream) {
  return stream != nullptr ? stream->queue : Queues::all().default_of(current_device());
}

}  // namespace

void hold(void* stream) { Queues::all().hold(static_cast<CUstream_st*>(stream)->queue, true); }
void release(void* stream) { Queues::all().hold(static_cast<CUstream_st*>(stream)->queue, false); }

void hold_apart(bool held) { Queues::all().hold_apart(held); }
std::size_t pending_apart() { return Queues::all().pending_apart(false); }
bool holds_work_apart() { return Queues::all().pending_apart(true) > 0; }
void tarry(std::chrono::milliseconds before_each) { Queues::all().tarry(before_each); }

void run_on(void* stream, std::function<void()> work) {
  enqueue(static_cast<CUstream_st*>(stream), Blocking{std::move(work)});
}

void run_on_default_of(int device, std::function<void()> work) {
  Queues::all().push(Queues::all().default_of(device), Blocking{std::move(work)}, nullptr, {});
}

CUstream_st* make_stream(bool apart) {
  return new CUstream_st{Queues::all().make(current_device(), apart)};
}

void destroy_stream(CUstream_st* stream) {
  Queues::all().end(stream->queue);
  delete stream;
}

bool draw_wait(CUstream_st* stream) { return Queues::all().draw_wait(queue_of(stream)); }
void drain(CUstream_st* stream) { Queues::all().drain(queue_of(stream)); }
void drain_all() { Queues::all().drain_all(); }

void enqueue(CUstream_st* stream, std::function<void()> work, std::function<void()> before) {
  if (stream != nullptr && stream->recording) {
    stream->recording->work.push_back(std::move(work));
    ++stream->recording->streams[stream][stream];
    return;
  }
  Queues::all().push(queue_of(stream), std::move(work), nullptr, std::move(before));
}

void record(CUevent_st* event, CUstream_st* stream) {
  event->point = Queues::all().push(queue_of(stream), {}, nullptr, {});
}

void wait_for(CUstream_st* stream, CUevent_st* event) {
  if (event->point != nullptr) Queues::all().push(queue_of(stream), {}, event->point, {});
}

void wait_for_word(CUstream_st* stream, const std::uint32_t* word) {
  Queues::all().wait_for_word(queue_of(stream), word);
}
void set_word(std::uint32_t* word) { Queues::all().set_word(word); }

std::size_t points_asked() { return Queues::all().points_asked(); }
Uncounted::Uncounted() { ++uncounted; }
Uncounted::~Uncounted() { --uncounted; }
bool Uncounted::here() { return uncounted > 0; }
bool has_passed(const CUevent_st* event) { return Queues::all().has_passed(event->point); }
Clock::time_point time_of(const CUevent_st* event) { return Queues::all().time_of(event->point); }

}  // namespace gradwire::emulation
