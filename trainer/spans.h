// What the threads of a training do when, told piece by piece for traces.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

namespace gradwire {

struct TrainerSpan {
  enum class Kind : std::uint8_t {
    kStep,       // all of the others, but kEvaluate
    kLoad,       // samples of a micro-batch
    kForward,    // of a layer
    kRecompute,  // the same once more, on the way back
    kLoss,
    kBackwardInput,   // of a layer: the derivative by its input
    kBackwardParams,  // by its parameters
    kBackward,        // both of a layer with peers: the first is added up during the second, which
                      // has a span of its own in this one where an exchange travels beside it
    kPeers,           // an exchange among peers, from its start until it was known to have ended
    kWait,            // for the exchange, after backward
    kOptimizer,
    kUpdate,            // a part of the optimizer's step, beside all the others
    kAverage,           // the loss and running statistics over ranks
    kEvaluationBegins,  // of no length: what is told from here until kEvaluate, and knows no steps,
                        // is of that
    kEvaluate,          // of what the step left, which is that step's
    kOperation,  // of a pipeline's schedule, without waits for messages; has layers' spans in it
    kMessage,    // between stages, from the issue of its send until its end was known
  };
  Kind kind = Kind::kStep;
  std::string_view layer =
      {};  // of exchanges, operations and messages their name; valid during the call
  std::int64_t step = 0;
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;

  // For `step`: the one that is under way, of what knows no steps.
  static constexpr std::int64_t kUnderWay = -1;
};

// Called on the thread that trains, and for kUpdate on the one that updates.
using OnTrainerSpan = std::function<void(const TrainerSpan& span)>;

// Tells of its own life. Null: of nothing, and looks at no clock.
class TimedSpan {
 public:
  TimedSpan(const OnTrainerSpan* told, TrainerSpan::Kind kind, std::int64_t step,
            std::string_view layer = {})
      : told_(told) {
    if (told_ == nullptr) return;
    span_.kind = kind;
    span_.layer = layer;
    span_.step = step;
    span_.begin = std::chrono::steady_clock::now();
  }
  TimedSpan(const TimedSpan&) = delete;
  TimedSpan& operator=(const TimedSpan&) = delete;
  ~TimedSpan() {
    if (told_ == nullptr) return;
    span_.end = std::chrono::steady_clock::now();
    (*told_)(span_);
  }

 private:
  const OnTrainerSpan* told_;
  TrainerSpan span_;
};

}  // namespace gradwire
