// A planned call by messages, and its runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "collectives/engine/sender_search.h"
#include "collectives/plan/message_path.h"
#include "collectives/plan/path.h"

namespace gradwire {

class MessageRun final : public PreparedCall {
 public:
  MessageRun(Group& group, MessageCall call) : PreparedCall(group), call_(std::move(call)) {}
  Status before() override { return call_.operated.before ? call_.operated.before() : Status(); }
  Status start(const std::shared_ptr<WorkState>& work, std::optional<Deadline> deadline) override;

 private:
  std::unique_ptr<Runnable> run_on(Route route) const;
  std::unique_ptr<Runnable> search(const std::shared_ptr<WorkState>& work) const;

  MessageCall call_;
};

// Of a search for the sender of a message with that tag, among all ranks of the group or that one.
SenderSearch::Wish wish_of(const Group& group, int peer, int tag);

}  // namespace gradwire
