// How a communicator runs operations: each path knows one way, by messages, through shared memory,
// by both, or by NCCL. GroupCommunicator asks its paths in turn which of them serves a call; the
// last one, messages, serves all.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "collectives/engine/work_state.h"
#include "collectives/plan/arguments.h"
#include "collectives/plan/group.h"
#include "gradwire/buffer.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// One or several calls on their memory, planned: of an ordinary call until it has started, of
// prepare() for many runs, one after another. Must not outlive its communicator.
class PreparedCall {
 public:
  explicit PreparedCall(Group& group) : group_(group) {}
  virtual ~PreparedCall() = default;
  // What is to be done in the caller's thread before anything of its batch starts.
  virtual Status before() { return {}; }
  // Starts a run, which is one operation of `work`. All ranks call it in the same order.
  virtual Status start(const std::shared_ptr<WorkState>& work,
                       const std::optional<Deadline>& deadline) = 0;
  // before() and start(), as a Work of its own.
  virtual Result<Work> start_alone(const std::optional<Deadline>& deadline);

 protected:
  Group& group() const { return group_; }

 private:
  Group& group_;
};

// For paths that are made: a group, and a communicator of it by which its ranks agree.
struct GroupMembers {
  Group& group;
  Communicator& communicator;
};

// All ranks' `own`, one after another. Collective.
inline Result<std::vector<std::int64_t>> gather_numbers(Communicator& group,
                                                        std::span<const std::int64_t> own) {
  std::vector<std::int64_t> all(own.size() * static_cast<std::size_t>(group.size()));
  GW_ASSIGN(Work work, group.all_gather(const_view_of(own), view_of(std::span(all))));
  GW_TRY(work.wait());
  return all;
}

// A probe ends by itself soon after its caller has given it up.
inline Deadline end_of_probe(Deadline until) {
  constexpr std::chrono::hours kLingers{1};
  return std::min(until, Deadline::max() - kLingers) + kLingers;
}

class CallPath {
 public:
  virtual ~CallPath() = default;

  // Whether such calls go this way, the same on all ranks. Before the call has been checked.
  virtual bool serves(const OpCall& call, const OpOptions& options) const = 0;
  // The device that all tensors must be on; nullopt: the host, or any one.
  virtual std::optional<Device> device() const { return std::nullopt; }
  // As Communicator::algorithm_for(); nullopt where such calls do not go this way.
  virtual Result<std::optional<std::string_view>> algorithm_for(OpKind kind, std::int64_t bytes,
                                                                std::string_view wanted) = 0;
  // Reads the call's spans before it returns.
  virtual Result<std::unique_ptr<PreparedCall>> prepare(const CheckedCall& call) = 0;
  // Those of a batch that go this way: one for each, or one for several.
  virtual Status prepare_all(const std::vector<CheckedCall>& calls,
                             std::vector<std::unique_ptr<PreparedCall>>& prepared) {
    for (const CheckedCall& call : calls) {
      GW_ASSIGN(std::unique_ptr<PreparedCall> one, prepare(call));
      prepared.push_back(std::move(one));
    }
    return {};
  }
  // A call that is prepared for one run.
  virtual Result<Work> start(const CheckedCall& call);

  // As Communicator::probe(), of sound arguments; nullopt where messages go another way.
  virtual std::optional<Result<int>> probe(int, int, Deadline) { return std::nullopt; }

  // The group's links have changed.
  virtual void use_new_links() {}
  // For describe(), after the group's own; may be empty.
  virtual std::string describe() const { return ""; }
  // Bytes that this rank has sent this way for all of the job's communicators, but as messages.
  virtual std::uint64_t job_bytes() const { return 0; }
  // The same for the group, where the group's counts do not have it.
  virtual std::uint64_t group_bytes() const { return 0; }
  // Memory for tensors that go this way; nullopt: any will do.
  virtual std::optional<Buffer> allocate(std::size_t) { return std::nullopt; }
  virtual SharedMemory shared_memory() const { return SharedMemory::kNone; }

  // The same way for a group of some of the ranks, which all call it; null where there is none.
  virtual Result<std::unique_ptr<CallPath>> for_group(const GroupMembers&) {
    return std::unique_ptr<CallPath>();
  }
  // For the groups of a split(color, key), which all ranks call; part: null for a rank in none.
  virtual Result<std::unique_ptr<CallPath>> for_split(int, int, const GroupMembers* part) {
    if (part == nullptr) return std::unique_ptr<CallPath>();
    return for_group(*part);
  }
  // Among those who are left of this path's ranks.
  virtual Result<std::unique_ptr<CallPath>> for_survivors(const GroupMembers& left) {
    return for_group(left);
  }
  // Before a split: what it must not meet on its way has ended.
  virtual Status await_all(Deadline) { return {}; }
};

// The path of messages (message_path.cc), which serves every call.
std::unique_ptr<CallPath> make_message_path(Group& group);

}  // namespace gradwire
