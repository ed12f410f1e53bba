// The inside of a gw_work: an outcome that threads wait for and that one callback hears of.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/c/handles.h"
#include "base/forks.h"
#include "device/stream_gate.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"
#include "gradwire/work.h"

namespace gradwire::c {

// Any thread may call.
class WorkCell {
 public:
  WorkCell() = default;
  WorkCell(const WorkCell&) = delete;
  WorkCell& operator=(const WorkCell&) = delete;
  virtual ~WorkCell() = default;

  // A child of the process that made it, in which it never ends.
  bool in_child() const { return mark_.in_child(); }
  bool done() const;
  // done(), once what can be done now is done.
  virtual bool look() { return done(); }
  // Waits for the end or `until`; true at the end.
  virtual bool wait(std::optional<Deadline> until);
  // What `stream` is given from now on runs after its end, however it ends. The device waits where
  // it can, else the caller. The outcome, or that of the operation so far.
  virtual Status wait_on(const Stream& stream);
  // Of one that is done.
  const Status& status() const { return status_; }
  const std::string& sentence() const { return sentence_; }
  int source() const { return source_; }

  // kInvalidArgument for a second one.
  Status on_done(gw_done_fn done, void* context);
  // Once: what it came to.
  void end(const Status& status, int source);

 private:
  const ForkMark mark_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  Status status_;         // these three are fixed when done_ is true
  std::string sentence_;  // of status_, "" when all is well
  int source_ = -1;
  std::vector<std::unique_ptr<StreamGate>> gates_;  // closed until the end
  gw_done_fn then_ = nullptr;
  void* context_ = nullptr;
  bool asked_ = false;
};

// An operation of a communicator. Waiting drives it.
class OperationCell final : public WorkCell {
 public:
  // source: of a recv that named its peer; else -1. after: run when it has ended well, before
  // anybody hears of it; may be empty.
  static std::shared_ptr<OperationCell> of(const Group& group, Work work, int source,
                                           std::function<void()> after = {});
  explicit OperationCell(Work work) : work_(std::move(work)) {}
  bool look() override;
  bool wait(std::optional<Deadline> until) override;
  Status wait_on(const Stream& stream) override;

 private:
  Work work_;  // used after its end alone, but for its state
};

// A handle of its own for the caller.
gw_work* new_work(std::shared_ptr<WorkCell> cell);

// now + seconds; nullopt below 0, and where that is beyond all times.
std::optional<Deadline> until_in(double seconds);

}  // namespace gradwire::c
