#include "adapters/torch/pool.h"

#include <thread>
#include <utility>

namespace gradwire::torch_backend {

namespace {

constexpr std::chrono::seconds kIdle{5};
thread_local bool inside_pool = false;

}  // namespace

Pool::Pool() : queue_(std::make_shared<Queue>()) {}

bool Pool::inside() { return inside_pool; }

void Pool::submit(std::function<void()> task) {
  std::unique_lock<std::mutex> lock(queue_->mutex);
  queue_->tasks.push_back(std::move(task));
  if (queue_->idle >= static_cast<int>(queue_->tasks.size())) {
    queue_->arrived.notify_one();
    return;
  }
  std::thread([queue = queue_] { serve(queue); }).detach();
}

void Pool::serve(const std::shared_ptr<Queue>& queue) {
  inside_pool = true;
  std::unique_lock<std::mutex> lock(queue->mutex);
  while (true) {
    ++queue->idle;
    const bool found =
        queue->arrived.wait_for(lock, kIdle, [&queue] { return !queue->tasks.empty(); });
    --queue->idle;
    if (!found) return;
    std::function<void()> task = std::move(queue->tasks.front());
    queue->tasks.pop_front();
    ++queue->running;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    if (--queue->running == 0 && queue->tasks.empty()) queue->quiet.notify_all();
  }
}

bool Pool::drain(std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(queue_->mutex);
  return queue_->quiet.wait_for(lock, limit,
                                [this] { return queue_->running == 0 && queue_->tasks.empty(); });
}

}  // namespace gradwire::torch_backend
