#include "compress/error_feedback/feedback.h"

#include <utility>

#include "compress/error_feedback/ef14.h"
#include "compress/error_feedback/ef21.h"
#include "compress/error_feedback/loco.h"
#include "compress/error_feedback/stored_residual.h"

namespace gradwire {

std::string_view to_string(FeedbackKind kind) {
  switch (kind) {
    case FeedbackKind::kNone: return "none";
    case FeedbackKind::kEf14: return "ef14";
    case FeedbackKind::kEf21: return "ef21";
    case FeedbackKind::kEf21Sgdm: return "ef21_sgdm";
    case FeedbackKind::kLoco: return "loco";
  }
  return "?";
}

Result<std::unique_ptr<Coder>> make_feedback(std::unique_ptr<Coder> inner, const Shape& shape,
                                             const Compressor::Placement& where,
                                             const FeedbackOptions& options, double scale) {
  switch (options.kind) {
    case FeedbackKind::kNone: break;
    case FeedbackKind::kEf14:
      if (options.storage == ResidualStorage::kFull) {
        return make_ef14(std::move(inner), shape, where, scale);
      }
      return make_loco(std::move(inner), shape, where,
                       {.storage = options.storage, .beta = 0, .reset = 0, .scale = scale});
    case FeedbackKind::kEf21: return make_ef21(std::move(inner), shape, where, {.scale = scale});
    case FeedbackKind::kEf21Sgdm:
      return make_ef21(std::move(inner), shape, where, {.scale = scale, .eta = options.eta});
    case FeedbackKind::kLoco:
      return make_loco(std::move(inner), shape, where,
                       {.storage = options.storage,
                        .beta = options.beta,
                        .reset = options.reset,
                        .scale = scale});
  }
  return inner;
}

bool is_feedback_state(const FeedbackOptions& options, std::string_view name) {
  if (options.kind == FeedbackKind::kNone) return false;
  return name == kResidualState || name == kResidualScales || name.starts_with(kEf21State);
}

}  // namespace gradwire
