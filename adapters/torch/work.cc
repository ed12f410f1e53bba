#include "adapters/torch/work.h"

#include "adapters/torch/clock.h"
#include "adapters/torch/failure.h"

namespace gradwire::torch_backend {

namespace {

c10::intrusive_ptr<c10::ivalue::Future> future_of_tensors() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

}  // namespace

GradwireWork::GradwireWork(int rank, Operation operation, std::uint64_t number,
                           std::shared_ptr<const Completion> completion)
    : c10d::Work(rank, operation.type, (std::string("gradwire:") + operation.name).c_str(),
                 std::nullopt),
      operation_(std::move(operation)),
      number_(number),
      completion_(std::move(completion)),
      future_(future_of_tensors()),
      started_(std::chrono::steady_clock::now()) {}

GradwireWork::~GradwireWork() { gw_work_free(handle_); }

void GradwireWork::begin() {
  if (completion_->blocking) {
    gw_work_wait(handle_, -1.0);
    settle();
    complete_future();
    return;
  }
  int done = 0;
  if (gw_work_test(handle_, &done) == GW_OK && done != 0) {  // nobody has chained anything yet
    settle();
    complete_future();
    return;
  }
  // The callback may come on a thread of gradwire's, which must not run what users chained.
  auto* self = c10::intrusive_ptr<GradwireWork>::reclaim_copy(this).release();
  check(gw_work_on_done(handle_, &GradwireWork::ended, self), operation_.name);
}

void GradwireWork::follow(const c10::intrusive_ptr<GradwireWork>& carrier) {
  std::unique_lock<std::mutex> lock(state_mutex_);
  carrier_ = carrier;
  lock.unlock();
  carrier->getFuture()->addCallback(
      [self = c10::intrusive_ptr<GradwireWork>::reclaim_copy(this)](c10::ivalue::Future&) {
        self->settle();
        self->complete_future();
      });
}

void GradwireWork::ended(void* context, gw_status /*status*/) {
  auto self = c10::intrusive_ptr<GradwireWork>::reclaim(static_cast<GradwireWork*>(context));
  const std::shared_ptr<Pool> pool = self->completion_->pool;
  pool->submit([self = std::move(self)]() mutable {
    self->settle();
    self->complete_future();
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
  try {
    const at::NoGradGuard no_grad;
    for (const auto& [to, from] : operation_.lent.copies) to.copy_(from);
    if (operation_.finish) operation_.finish();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
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
  if (recordFunctionEndCallback_) recordFunctionEndCallback_();
}

void GradwireWork::complete_future() {
  if (told_) {
    told_(error_);
    told_ = nullptr;
  }
  if (completion_->hook) {
    completion_->hook(c10d::WorkInfo(opType_, number_,
                                     std::chrono::steady_clock::time_point(started_), finished_,
                                     std::chrono::duration<float>(finished_ - started_)));
  }
  if (error_) {
    future_->setErrorIfNeeded(error_);
  } else {
    future_->markCompleted(c10::IValue(operation_.outputs));
  }
}

bool GradwireWork::isCompleted() {
  std::unique_lock<std::mutex> lock(state_mutex_);
  if (state_ == State::kSettled) return true;
  const c10::intrusive_ptr<GradwireWork> carrier = carrier_;
  lock.unlock();
  int done = 0;
  if (carrier) {
    done = carrier->isCompleted() ? 1 : 0;
  } else if (handle_ != nullptr) {
    gw_work_test(handle_, &done);
  }
  if (done == 0) return false;
  settle();
  return true;
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

bool GradwireWork::wait(std::chrono::milliseconds timeout) {
  if (carrier_) {
    carrier_->wait(timeout);
  } else if (!isCompleted()) {
    TORCH_CHECK(handle_ != nullptr, "gradwire: ", operation_.name,
                " was not started: its batch has not ended");
    const bool limited = timeout.count() > 0;
    const int waited = gw_work_wait(handle_, limited ? seconds_of(timeout) : -1.0);
    if (waited == GW_UNSUPPORTED) {
      raise("gradwire: " + std::string(operation_.name) +
            ": a forked child has none of its parent's operations");
    }
    int done = 0;
    gw_work_test(handle_, &done);
    if (done == 0) {
      raise(std::string("gradwire: ") + operation_.name + " has not ended within the " +
            std::to_string(seconds_of(timeout)) + " s that wait() was given; it continues");
    }
  }
  settle();
  const std::exception_ptr error = exception();
  if (error) std::rethrow_exception(error);
  return true;
}

void GradwireWork::abort() {
  TORCH_CHECK(false, "gradwire: one operation cannot be aborted (the group's abort() can)");
}

c10::intrusive_ptr<c10::ivalue::Future> GradwireWork::getFutureResult() {
  auto result = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  future_->addCallback([result](c10::ivalue::Future& ended) {
    const auto outcome =
        ended.hasError() ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS;
    result->markCompleted(c10::IValue(static_cast<std::int64_t>(outcome)));
  });
  return result;
}

float GradwireWork::getDuration() const {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  TORCH_CHECK(state_ == State::kSettled, "gradwire: ", operation_.name, " has not ended");
  return std::chrono::duration<float, std::milli>(finished_ - started_).count();
}

}  // namespace gradwire::torch_backend
