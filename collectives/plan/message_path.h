// The path of messages: a schedule, chosen by its predicted time, run over the transport. It serves
// every call, on the host and, through pinned memory or a transport that takes it, on devices.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/cost/choice.h"
#include "collectives/engine/layout.h"
#include "collectives/plan/lent_inputs.h"
#include "collectives/plan/path.h"
#include "collectives/schedules/op_traits.h"

namespace gradwire {

// A schedule of a call, and how it uses messages and memory. Immutable.
struct MessagePlan {
  std::shared_ptr<const Layout> layout;
  std::string_view algorithm;  // a literal
};

// All that a plan of one group depends on, but its links.
struct PlanKey {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kU8;
  std::int64_t in = 0;  // elements, as Extent has them
  std::int64_t out = 0;
  std::int64_t agreed = -1;
  int peer = 0;
  std::vector<std::int64_t> counts = {};
  std::vector<std::int64_t> recv_counts = {};
  std::string_view algorithm = {};  // as asked for; of a plan in the cache: a literal
  bool apart = false;               // input and output are not the same memory
  std::int64_t shared = 0;          // of an input that is part of the output, or the reverse
  std::int64_t in_begin = 0;
  std::int64_t out_begin = 0;
  StagedTensors staged = {};
  auto operator<=>(const PlanKey&) const = default;
};

struct MessageCall;

class MessagePath final : public CallPath {
 public:
  explicit MessagePath(Group& group);

  bool serves(const OpCall&, const OpOptions&) const override { return true; }
  Result<std::optional<std::string_view>> algorithm_for(OpKind kind, std::int64_t bytes,
                                                        std::string_view wanted) override;
  Result<std::unique_ptr<PreparedCall>> prepare(const CheckedCall& call) override;
  void use_new_links() override;
  // The group describes its messages itself.
  std::string describe() const override { return ""; }
  Result<std::unique_ptr<CallPath>> for_group(const GroupMembers&) override {
    return std::unique_ptr<CallPath>();
  }

 private:
  class Run;

  Result<MessageCall> plan(const CheckedCall& call);
  Result<std::string_view> choose(OpKind kind, std::int64_t bytes, std::string_view wanted);
  std::string_view default_of(const OpTraits& traits) const;
  // One that is there, since calls are alike, or a new one, which is kept.
  Result<MessagePlan> plan_of(const CheckedCall& call, PlanKey key);
  Result<MessagePlan> make_plan(const CheckedCall& call, const PlanKey& key);
  Result<Schedule> schedule_of(const CheckedCall& call, std::string_view& algorithm,
                               std::int64_t& segment_bytes);
  Status place_on(Device device, MessageCall& planned, const CheckedCall& call) const;

  Group& group_;
  AlgorithmChoice choice_;
  std::map<PlanKey, MessagePlan> plans_;
  std::size_t steps_ = 0;  // of plans_
  std::shared_ptr<OwnMemory> memory_;
};

}  // namespace gradwire
