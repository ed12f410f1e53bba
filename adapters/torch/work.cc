#include "adapters/torch/work.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <thread>

#include "adapters/torch/clock.h"
#include "adapters/torch/failure.h"
#include "adapters/torch/streams.h"

namespace gradwire::torch_backend {

namespace {

c10::intrusive_ptr<c10::ivalue::Future> future_of_tensors(
    const std::optional<c10::Stream>& stream) {
  std::vector<c10::Device> devices;
  if (stream) devices.push_back(stream->device());
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                  std::move(devices));
}

c10::IValue number_of(const std::exception_ptr& error) {
  return static_cast<std::int64_t>(error ? c10d::WorkResult::COMM_ERROR
                                         : c10d::WorkResult::SUCCESS);
}

bool is_message(const Operation& operation) {
  return operation.type == c10d::OpType::RECVANYSOURCE ||
         std::any_of(operation.ops.begin(), operation.ops.end(), [](const gw_op& op) {
           return op.kind == GW_OP_SEND || op.kind == GW_OP_RECV;
         });
}

bool can_follow_at_start(const Operation& operation, bool blocking) {
  return operation.stream && operation.results && !blocking && !is_message(operation) &&
         operation.type != c10d::OpType::BARRIER;
}

bool can_follow_at_wait(const Operation& operation, bool blocking) {
  return operation.stream && !blocking && is_message(operation) && operation.lent.copies.empty() &&
         !operation.finish && operation.type != c10d::OpType::RECVANYSOURCE;
}

}  // namespace

void Followed::begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++running_;
}

void Followed::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--running_ == 0) none_.notify_all();
}

void Followed::await(std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  none_.wait_for(lock, limit, [this] { return running_ == 0; });
}

GradwireWork::GradwireWork(int rank, Operation operation, std::uint64_t number,
                           std::shared_ptr<const Completion> completion)
    : c10d::Work(rank, operation.type, (std::string("gradwire:") + operation.name).c_str(),
                 std::nullopt),
      operation_(std::move(operation)),
      at_start_(can_follow_at_start(operation_, completion->blocking)),
      at_wait_(can_follow_at_wait(operation_, completion->blocking)),
      number_(number),
      completion_(std::move(completion)),
      future_(future_of_tensors(operation_.stream)),
      started_(std::chrono::steady_clock::now()) {}

GradwireWork::~GradwireWork() { gw_work_free(handle_); }

void GradwireWork::begin() {
  if (completion_->blocking) {
    gw_work_wait(handle_, -1.0);
    settle();
    complete();
    return;
  }
  followed_ = operation_.stream.has_value();
  if (followed_) completion_->followed->begin();
  int done = 0;
  // What has ended by now needs no other stream: neither do operations of a CUDA graph that is
  // captured, which have then, and whose capture that stream would join.
  const bool ended = gw_work_test(handle_, &done) == GW_OK && done != 0;
  at_start_ = at_start_ && !ended && follow_at_start();
  if (at_start_) {
    give_future(nullptr);
    for (const auto& work : carried_) work->give_future(nullptr);
  }
  if (ended) {  // nobody has chained anything yet
    settle();
    complete();
    return;
  }
  // The callback may come on a thread of gradwire's, which must not run what users chained.
  auto* self = c10::intrusive_ptr<GradwireWork>::reclaim_copy(this).release();
  check(gw_work_on_done(handle_, &GradwireWork::ended, self), operation_.name);
}

void GradwireWork::carry(std::vector<c10::intrusive_ptr<GradwireWork>> works) {
  const auto self = c10::intrusive_ptr<GradwireWork>::reclaim_copy(this);
  for (const auto& work : works) {
    const std::lock_guard<std::mutex> lock(work->state_mutex_);
    work->carrier_ = self;
  }
  carried_ = std::move(works);
}

// Has the group's stream wait for the operation, and enqueues there what remains to be done. False:
// the operation has failed already, or the device refuses, which the host will be told by waiting.
bool GradwireWork::follow_at_start() {
  const c10::Stream& there = *operation_.results;
  try {
    order(*operation_.stream, there);  // behind what is done with the outputs before
    const gw_stream stream = native_of(there);
    if (gw_work_wait_on(handle_, &stream) != GW_OK) return false;
    finish_outputs(there);
    if (!passed_) {
      passed_.emplace(there.device_type());
      passed_->record(there);
    }
  } catch (const c10::Error&) {
    passed_.reset();
    return false;
  }
  return true;
}

void GradwireWork::ended(void* context, gw_status /*status*/) {
  auto self = c10::intrusive_ptr<GradwireWork>::reclaim(static_cast<GradwireWork*>(context));
  const std::shared_ptr<Pool> pool = self->completion_->pool;
  pool->submit([self = std::move(self)]() mutable {
    self->settle();
    self->complete();
    self.reset();
  });
}

// c10d's users look for the word "timeout", whether a rank then turns out to be late or lost.
std::string GradwireWork::sentence() const {
  const auto took = std::chrono::steady_clock::now() - started_;
  std::string text = "gradwire: ";
  if (operation_.timeout.count() > 0 && took >= operation_.timeout) {
    text += std::string(operation_.name) + " reached its timeout of " +
            std::to_string(operation_.timeout.count()) + " ms: ";
  }
  return text + gw_work_error(handle_) + way_out(gw_work_status(handle_), completion_->blocking);
}

std::exception_ptr GradwireWork::outcome() {
  if (carrier_) {
    carrier_->settle();
    return carrier_->exception();
  }
  const gw_status status = gw_work_status(handle_);
  if (status != GW_OK) return failure_of(sentence());
  source_ = gw_work_source(handle_);
  if (at_start_) return nullptr;
  try {
    finish_outputs(operation_.stream);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// On a stream of a device the memory is kept until that has come past.
void GradwireWork::finish_outputs(const std::optional<c10::Stream>& there) {
  if (operation_.lent.copies.empty() && !operation_.finish) return;
  const at::NoGradGuard no_grad;
  const c10::OptionalStreamGuard guard(there);
  for (const auto& [to, from] : operation_.lent.copies) to.copy_(from);
  if (operation_.finish) operation_.finish();
  if (!there) return;
  for (const auto& [to, from] : operation_.lent.copies) used_on(to, *there);
  for (const at::Tensor& tensor : operation_.lent.kept) used_on(tensor, *there);
  for (const at::Tensor& tensor : operation_.outputs) used_on(tensor, *there);
  passed_.emplace(there->device_type());
  passed_->record(*there);
}

// What the caller enqueues from now on comes after the outputs.
void GradwireWork::follow_outputs() const {
  const std::optional<c10::Event>& passed = lead().passed_;
  if (passed) passed->block(*current_stream(passed->device()));
}

void GradwireWork::synchronize() {
  if (operation_.stream) wait(c10d::kUnsetTimeout);
}

void GradwireWork::settle() {
  std::unique_lock<std::mutex> lock(state_mutex_);
  if (state_ == State::kSettling) {
    settled_.wait(lock, [this] { return state_ == State::kSettled; });
  }
  if (state_ == State::kSettled) return;
  state_ = State::kSettling;
  lock.unlock();
  std::exception_ptr error = outcome();
  lock.lock();
  error_ = error;
  finished_ = std::chrono::steady_clock::now();
  state_ = State::kSettled;
  // What was lent may hold the last reference to a Python object, whose end takes the
  // interpreter's lock: let it go only when nobody waits here any more.
  Lent lent = std::move(operation_.lent);
  std::function<void()> finish = std::move(operation_.finish);
  lock.unlock();
  settled_.notify_all();
  if (followed_) completion_->followed->end();
  if (recordFunctionEndCallback_) recordFunctionEndCallback_();
}

// Once, when the operation has ended and is settled.
void GradwireWork::complete() {
  if (completion_->hook) {
    completion_->hook(c10d::WorkInfo(opType_, number_,
                                     std::chrono::steady_clock::time_point(started_), finished_,
                                     std::chrono::duration<float>(finished_ - started_)));
  }
  const auto carried = std::move(carried_);
  for (const auto& work : carried) {
    work->settle();
    work->complete();
  }
  give_future(error_);
  std::unique_lock<std::mutex> lock(state_mutex_);
  const auto outcomes = std::move(outcomes_);
  lock.unlock();
  for (const auto& outcome : outcomes) outcome->markCompleted(number_of(error_));
}

void GradwireWork::give_future(const std::exception_ptr& error) {
  if (given_.exchange(true)) return;
  const c10::OptionalStreamGuard there(lead().at_start_ ? operation_.results : operation_.stream);
  if (!error && !lead().at_start_) follow_outputs();
  if (told_) {
    told_(error);
    told_ = nullptr;
  }
  if (error) {
    future_->setErrorIfNeeded(error);
  } else {
    future_->markCompleted(c10::IValue(operation_.outputs));
  }
}

bool GradwireWork::ended_here() {
  std::unique_lock<std::mutex> lock(state_mutex_);
  if (state_ == State::kSettled) return true;
  const c10::intrusive_ptr<GradwireWork> carrier = carrier_;
  lock.unlock();
  int done = 0;
  if (carrier) {
    done = carrier->ended_here() ? 1 : 0;
  } else if (handle_ != nullptr) {
    gw_work_test(handle_, &done);
  }
  if (done == 0) return false;
  settle();
  return true;
}

bool GradwireWork::isCompleted() {
  if (!ended_here()) return false;
  const std::optional<c10::Event>& passed = lead().passed_;
  return exception() || !passed || passed->query();
}

bool GradwireWork::isSuccess() const {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  return state_ == State::kSettled && !error_;
}

std::exception_ptr GradwireWork::exception() const {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  return error_;
}

int GradwireWork::sourceRank() const {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  TORCH_CHECK(source_ >= 0, "gradwire: ", operation_.name,
              " has no source (expected a finished recv from any rank)");
  return source_;
}

std::vector<at::Tensor> GradwireWork::result() { return operation_.outputs; }

// False where the operation has failed already.
bool GradwireWork::wait_there() {
  gw_work* const handle = lead().handle_;
  TORCH_CHECK(handle != nullptr, "gradwire: ", operation_.name,
              " was not started: its batch has not ended");
  const gw_stream stream = native_of(current_stream(operation_.stream->device()));
  return gw_work_wait_on(handle, &stream) == GW_OK;
}

// Whether the device has come past the results by then.
bool GradwireWork::await_copies(std::chrono::steady_clock::time_point until) const {
  const std::optional<c10::Event>& passed = lead().passed_;
  while (passed && !passed->query()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

bool GradwireWork::wait(std::chrono::milliseconds timeout) {
  const bool limited = timeout.count() > 0;
  const auto until = std::chrono::steady_clock::now() + timeout;
  if (operation_.stream && !limited && !ended_here()) {
    if (lead().at_start_ && lead().handle_ != nullptr) {
      follow_outputs();
      return true;
    }
    if (lead().at_wait_ && wait_there()) return true;
  }
  if (!ended_here()) {
    TORCH_CHECK(lead().handle_ != nullptr, "gradwire: ", operation_.name,
                " was not started: its batch has not ended");
    const int waited = gw_work_wait(lead().handle_, limited ? seconds_of(timeout) : -1.0);
    if (waited == GW_UNSUPPORTED) {
      raise("gradwire: " + std::string(operation_.name) +
            ": a forked child has none of its parent's operations");
    }
  }
  if (!ended_here() || (limited && !exception() && !await_copies(until))) {
    raise(std::string("gradwire: ") + operation_.name + " has not ended within the " +
          std::to_string(seconds_of(timeout)) + " s that wait() was given; it continues");
  }
  const std::exception_ptr error = exception();
  if (error) std::rethrow_exception(error);
  follow_outputs();
  return true;
}

void GradwireWork::abort() {
  TORCH_CHECK(false, "gradwire: one operation cannot be aborted (the group's abort() can)");
}

c10::intrusive_ptr<c10::ivalue::Future> GradwireWork::getFutureResult() {
  auto result = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  std::unique_lock<std::mutex> lock(state_mutex_);
  const bool settled = state_ == State::kSettled;
  if (!settled) outcomes_.push_back(result);
  lock.unlock();
  if (settled) result->markCompleted(number_of(exception()));
  return result;
}

float GradwireWork::getDuration() const {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  TORCH_CHECK(state_ == State::kSettled, "gradwire: ", operation_.name, " has not ended");
  return std::chrono::duration<float, std::milli>(finished_ - started_).count();
}

}  // namespace gradwire::torch_backend
