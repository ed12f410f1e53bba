// The kinds of error feedback and their parameters, and the one place that opens them.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "gradwire/coder.h"
#include "gradwire/compressor.h"
#include "gradwire/status.h"

namespace gradwire {

enum class FeedbackKind : std::uint8_t {
  kNone,
  kEf14,      // ef14.h
  kEf21,      // ef21.h
  kEf21Sgdm,  // ef21.h, of a moving average of gradients
  kLoco,      // loco.h
};
std::string_view to_string(FeedbackKind kind);  // "none", "ef14", "ef21", "ef21_sgdm", "loco"

// How a residual rests between steps.
enum class ResidualStorage : std::uint8_t {
  kFull,  // in the gradient's own type
  kBf16,  // 2 bytes an element
  kInt8,  // 1 byte an element and 4 for every 256
};

struct FeedbackOptions {
  FeedbackKind kind = FeedbackKind::kNone;
  ResidualStorage storage = ResidualStorage::kFull;  // of kEf14 and kLoco
  double eta = 0.1;           // kEf21Sgdm: the new gradient's share in (0, 1]
  double beta = 0.8;          // kLoco: the old residual's share in [0, 1)
  std::int64_t reset = 1024;  // kLoco: steps between resets; 0: never
  bool rescale_lr = false;    // the residual follows Aggregator::set_learning_rate()
};

// Whether e is what a step left over, so that nothing is lost, only late.
constexpr bool telescopes(const FeedbackOptions& options) {
  return options.kind == FeedbackKind::kEf14;
}

// Decorates `inner` as `options` say; `inner` itself for kNone. `scale` as check_pair() found it:
// what is multiplied into each message. Errors as make_ef14().
Result<std::unique_ptr<Coder>> make_feedback(std::unique_ptr<Coder> inner, const Shape& shape,
                                             const Compressor::Placement& where,
                                             const FeedbackOptions& options, double scale);

// Is `name` an entry of a decorator's state()? All others are the inner coder's.
bool is_feedback_state(const FeedbackOptions& options, std::string_view name);

}  // namespace gradwire
