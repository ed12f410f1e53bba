// Messages of a rank to itself: sends and receives of equal tags meet in order.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>

namespace gradwire::comm {

// Op has `kind` and `tag`. Ops are borrowed while they wait.
template <typename Op>
class SelfQueue {
 public:
  // The oldest waiting partner, taken out; or null, and `op` waits.
  Op* meet(Op& op) {
    std::deque<Op*>& waiting = queues_[op.tag];
    if (waiting.empty() || waiting.front()->kind == op.kind) {
      waiting.push_back(&op);
      return nullptr;
    }
    Op* partner = waiting.front();
    waiting.pop_front();
    if (waiting.empty()) queues_.erase(op.tag);
    return partner;
  }

  void remove(const Op& op) {
    const auto found = queues_.find(op.tag);
    if (found == queues_.end()) return;
    std::erase(found->second, &op);
    if (found->second.empty()) queues_.erase(found);
  }

 private:
  std::unordered_map<std::uint64_t, std::deque<Op*>> queues_;
};

}  // namespace gradwire::comm
