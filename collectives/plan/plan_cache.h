// The plans of one group, by what they depend on: schedules are made once for calls that are alike.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "collectives/engine/layout.h"
#include "gradwire/communicator.h"
#include "gradwire/tensor.h"

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

// Used by one thread at a time.
class PlanCache {
 public:
  using Make = std::function<Result<MessagePlan>(const PlanKey& key)>;
  // The plan of a call: one that is there, or what `make` makes, which is kept.
  Result<MessagePlan> of(PlanKey key, const Make& make);
  void clear();

 private:
  // Beyond, all are forgotten: some 10 MB.
  static constexpr std::size_t kMostSteps = 64 << 10;

  std::map<PlanKey, MessagePlan> plans_;
  std::size_t steps_ = 0;
};

}  // namespace gradwire
