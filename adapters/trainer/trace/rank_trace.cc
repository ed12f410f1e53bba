#include "adapters/trainer/trace/rank_trace.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

std::int64_t nanoseconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

struct Naming {
  std::string_view category;
  std::string_view name;  // "": the layer's
};
Naming naming_of(TrainerSpan::Kind kind) {
  using Kind = TrainerSpan::Kind;
  switch (kind) {
    case Kind::kStep: return {"step", "step"};
    case Kind::kLoad: return {"forward", "samples"};
    case Kind::kForward: return {"forward", ""};
    case Kind::kRecompute: return {"recompute", ""};
    case Kind::kLoss: return {"forward", "loss"};
    case Kind::kBackwardInput: return {"backward", ""};
    case Kind::kBackwardParams: return {"backward weights", ""};
    case Kind::kBackward: return {"backward", ""};
    case Kind::kPeers: return {"peers", ""};
    case Kind::kWait: return {"exposed", "wait for gradients"};
    case Kind::kOptimizer: return {"optimizer", "optimizer"};
    case Kind::kUpdate: return {"optimizer", "update"};
    case Kind::kAverage: return {"average", "loss over ranks"};
    case Kind::kEvaluationBegins: break;
    case Kind::kEvaluate: return {"evaluate", "evaluate"};
    case Kind::kOperation: return {"operation", ""};
    case Kind::kMessage: return {"message", ""};
  }
  return {"other", "other"};
}

std::string_view category_of(AggregateSpan::Kind kind) {
  switch (kind) {
    case AggregateSpan::Kind::kEncode: return "encode";
    case AggregateSpan::Kind::kExchange: return "wire";
    case AggregateSpan::Kind::kDecode: return "decode";
  }
  return "other";
}

}  // namespace

void RankTrace::continue_from(std::int64_t steps) {
  end_ += steps - first_;
  first_ = steps;
  step_ = steps;
}

void RankTrace::count(std::int64_t step, const TrafficBytes& bytes) {
  if (step >= end_) return;
  const std::lock_guard lock(mutex_);
  counts_.push_back({step, nanoseconds(std::chrono::steady_clock::now()), bytes});
}

std::function<void(const AggregateSpan&)> RankTrace::of_aggregator() {
  return [this](const AggregateSpan& span) { add(span); };
}

int RankTrace::stream(const std::string& name) {
  const auto found = std::ranges::find(streams_, name);
  if (found != streams_.end()) return static_cast<int>(found - streams_.begin());
  streams_.push_back(name);
  return static_cast<int>(streams_.size()) - 1;
}

// A message may begin before the one before it has ended: it is in another row then.
int RankTrace::stream_of(const TrainerSpan& span) {
  if (span.kind == TrainerSpan::Kind::kUpdate) return stream("updates");
  if (span.kind == TrainerSpan::Kind::kOperation) return stream("operations");
  if (span.kind == TrainerSpan::Kind::kPeers) return stream("tensor peers");
  if (span.kind != TrainerSpan::Kind::kMessage) return 0;
  const std::int64_t begin = nanoseconds(span.begin);
  const auto free =
      std::ranges::find_if(message_ends_, [&](std::int64_t end) { return end <= begin; });
  const auto row = static_cast<std::size_t>(free - message_ends_.begin());
  if (row == message_ends_.size()) message_ends_.push_back(0);
  message_ends_[row] = nanoseconds(span.end);
  return stream(row == 0 ? "messages sent" : format("messages sent %zu", row + 1));
}

// A layer's spans come before their step's, which ends last: the step that is under way is the
// one after the last that ended, or that which is evaluated.
void RankTrace::add(const TrainerSpan& span) {
  using Kind = TrainerSpan::Kind;
  if (span.kind == Kind::kEvaluationBegins) {
    step_ = span.step;
    return;
  }
  if (span.kind == Kind::kStep || span.kind == Kind::kEvaluate) step_ = span.step + 1;
  const std::int64_t step = span.step == TrainerSpan::kUnderWay ? step_.load() : span.step;
  if (step >= end_) return;
  const Naming naming = naming_of(span.kind);
  const std::string_view name = naming.name.empty() ? span.layer : naming.name;
  const std::lock_guard lock(mutex_);
  const int at = stream_of(span);
  spans_.push_back({at, std::string(name), naming.category, step, nanoseconds(span.begin),
                    nanoseconds(span.end)});
}

void RankTrace::add(const AggregateSpan& span) {
  const std::int64_t step = step_;
  if (step >= end_) return;
  const std::string traffic(to_string(span.traffic));
  const bool wire = span.kind == AggregateSpan::Kind::kExchange;
  std::string name = format("bucket %d", span.bucket);
  if (span.phase > 0) name += format(", phase %d", span.phase);
  const std::lock_guard lock(mutex_);
  const int at =
      stream(wire ? format("%s: wire %d", traffic.c_str(), span.lane) : traffic + ": coder");
  spans_.push_back({at, std::move(name), category_of(span.kind), step, nanoseconds(span.begin),
                    nanoseconds(span.end)});
}

}  // namespace gradwire
