// The path of messages: a schedule, chosen by its predicted time, run over the transport. It serves
// every call, on the host and, through pinned memory or a transport that takes it, on devices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/cost/choice.h"
#include "collectives/plan/own_memory.h"
#include "collectives/plan/path.h"
#include "collectives/plan/plan_cache.h"
#include "collectives/schedules/op_traits.h"

namespace gradwire {

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
  Result<MessagePlan> make_plan(const CheckedCall& call, const PlanKey& key);
  Result<Schedule> schedule_of(const CheckedCall& call, std::string_view& algorithm,
                               std::int64_t& segment_bytes);
  Status place_on(Device device, MessageCall& planned, const CheckedCall& call) const;

  Group& group_;
  AlgorithmChoice choice_;
  PlanCache plans_;
  std::shared_ptr<OwnMemory> memory_;
};

}  // namespace gradwire
