// In which form a rank's gradients are handed over, for those that fold them and for the accounts
// of what that holds. GradientFold has the table of forms.
#pragma once

#include <cstdint>

namespace gradwire {

enum class GradientForm : std::uint8_t { kWide, kSums, kStored };

struct GradientFormQuestion {
  bool wide = false;            // fp32 is wanted, or all that there is
  bool sums_first = false;      // several micro-batches are added up before anything is handed over
  bool main_gradients = false;  // TrainingOptions::main_gradients
};

constexpr GradientForm gradient_form(const GradientFormQuestion& asked) {
  if (asked.wide) return GradientForm::kWide;
  return asked.sums_first && asked.main_gradients ? GradientForm::kSums : GradientForm::kStored;
}

}  // namespace gradwire
