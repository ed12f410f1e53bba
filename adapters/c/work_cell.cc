#include "adapters/c/work_cell.h"

#include "adapters/c/outcome.h"
#include "adapters/c/places.h"
#include "collectives/engine/work_state.h"

namespace gradwire::c {
namespace {

constexpr double kForever = 1e9;  // seconds

}  // namespace

bool WorkCell::done() const {
  if (in_child()) return done_;  // who held the mutex is not there
  const std::lock_guard lock(mutex_);
  return done_;
}

bool WorkCell::wait(std::optional<Deadline> until) {
  if (in_child()) return done_;
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return done_; };
  if (!until) {
    changed_.wait(lock, ended);
    return true;
  }
  return changed_.wait_until(lock, *until, ended);
}

Status WorkCell::on_done(gw_done_fn done, void* context) {
  {
    const std::lock_guard lock(mutex_);
    if (asked_) {
      return {Code::kInvalidArgument,
              "gw_work_on_done: called a second time for a work (expected once)"};
    }
    asked_ = true;
    if (!done_) {
      then_ = done;
      context_ = context;
      return {};
    }
  }
  done(context, number_of(status_.code()));
  return {};
}

void WorkCell::end(const Status& status, int source) {
  gw_done_fn then = nullptr;
  std::vector<std::unique_ptr<StreamGate>> gates;  // open when it is gone
  {
    const std::lock_guard lock(mutex_);
    gates.swap(gates_);
    status_ = status;
    if (!status.ok()) sentence_ = status.message();
    source_ = source;
    done_ = true;
    then = then_;
  }
  changed_.notify_all();
  gates.clear();
  if (then != nullptr) then(context_, number_of(status.code()));
}

std::shared_ptr<OperationCell> OperationCell::of(const Group& group, Work work, int source,
                                                 std::function<void()> after) {
  const std::shared_ptr<WorkState> state = work.state();
  auto cell = std::make_shared<OperationCell>(std::move(work));
  if (state == nullptr) {
    if (after) after();
    cell->end({}, source);
    return cell;
  }
  ++*group.open;
  // The cell lives until the operation has ended, whether anybody has a handle or not.
  state->on_done([cell, source, after = std::move(after), open = group.open] {
    const WorkState& ended = *cell->work_.state();
    if (after && ended.status().ok()) after();
    --*open;
    cell->end(ended.status(), ended.source() >= 0 ? ended.source() : source);
  });
  return cell;
}

bool OperationCell::look() {
  const std::shared_ptr<WorkState>& state = work_.state();
  if (WorkCell::done() || state == nullptr || in_child() || !state->look()) return WorkCell::done();
  return WorkCell::wait(std::nullopt);  // who has found the end is about to say so
}

bool OperationCell::wait(std::optional<Deadline> until) {
  const std::shared_ptr<WorkState>& state = work_.state();
  if (state != nullptr && !state->done() && !state->wait(until)) return WorkCell::done();
  // Whoever found the end is about to say so.
  return WorkCell::wait(std::nullopt);
}

Status WorkCell::wait_on(const Stream& stream) {
  if (in_child()) {
    return {Code::kUnsupported, "gw_work_wait_on: a forked child has none of its parent's works"};
  }
  if (!done()) {
    auto gate = StreamGate::close(stream);
    const std::lock_guard lock(mutex_);
    if (gate.has_value() && !done_) {
      gates_.push_back(std::move(gate).value());
      return {};
    }
    if (!gate.has_value() && gate.error().code() != Code::kUnsupported) return gate.error();
  }
  wait(std::nullopt);
  return status();
}

Status OperationCell::wait_on(const Stream& stream) {
  const std::shared_ptr<WorkState>& state = work_.state();
  const bool by_device = state != nullptr && state->hold() && !state->done() && !state->in_child();
  return by_device ? state->hold()(stream) : WorkCell::wait_on(stream);
}

gw_work* new_work(std::shared_ptr<WorkCell> cell) {
  auto work = std::make_unique<gw_work>();
  work->cell = std::move(cell);
  return work.release();
}

std::optional<Deadline> until_in(double seconds) {
  if (!(seconds >= 0) || seconds > kForever) return std::nullopt;
  return deadline_in(seconds);
}

}  // namespace gradwire::c

using namespace gradwire;
using namespace gradwire::c;

gw_status gw_work_test(gw_work* work, int* done) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(work, "gw_work_test", "work"));
    GW_TRY(check_given(done, "gw_work_test", "done"));
    *done = work->cell->look() ? 1 : 0;
    return {};
  });
}

gw_status gw_work_wait(gw_work* work, double seconds) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(work, "gw_work_wait", "work"));
    if (work->cell->wait(until_in(seconds))) return work->cell->status();
    if (work->cell->in_child()) {
      return {Code::kUnsupported, "gw_work_wait: a forked child has none of its parent's works"};
    }
    return {Code::kTimedOut,
            format("gw_work_wait: not done after %g s; the operation continues", seconds)};
  });
}

gw_status gw_work_wait_on(gw_work* work, const gw_stream* stream) {
  constexpr const char* kName = "gw_work_wait_on";
  return guarded([&]() -> Status {
    GW_TRY(check_handle(work, kName, "work"));
    GW_TRY(check_given(stream, kName, "stream"));
    GW_ASSIGN(const Stream own, stream_of(kName, *stream));
    return work->cell->wait_on(own);
  });
}

gw_status gw_work_status(gw_work* work) {
  gw_status seen = GW_IN_PROGRESS;
  const gw_status valid = guarded([&]() -> Status {
    GW_TRY(check_handle(work, "gw_work_status", "work"));
    if (!work->cell->done()) return {};
    seen = number_of(work->cell->status().code());
    return work->cell->status();
  });
  return seen == GW_IN_PROGRESS && valid != GW_OK ? valid : seen;
}

const char* gw_work_error(gw_work* work) {
  const gw_status valid = guarded([&] { return check_handle(work, "gw_work_error", "work"); });
  return valid == GW_OK && work->cell->done() ? work->cell->sentence().c_str() : "";
}

int gw_work_source(gw_work* work) {
  const gw_status valid = guarded([&] { return check_handle(work, "gw_work_source", "work"); });
  return valid == GW_OK && work->cell->done() ? work->cell->source() : -1;
}

gw_status gw_work_on_done(gw_work* work, gw_done_fn done, void* context) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(work, "gw_work_on_done", "work"));
    if (done == nullptr) return {Code::kInvalidArgument, "gw_work_on_done: done is NULL"};
    const std::shared_ptr<WorkCell> cell = work->cell;  // `done` may free the handle
    return cell->on_done(done, context);
  });
}

void gw_work_free(gw_work* work) {
  if (work == nullptr || work->magic != gw_work::kMagic) return;
  work->magic = 0;
  delete work;
}
