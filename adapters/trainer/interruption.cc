#include "adapters/trainer/interruption.h"

#include <algorithm>
#include <csignal>

#include "base/text.h"

namespace gradwire {
namespace {

// Ranks that were asked by SIGINT count 1, those by another signal kOther, so that a sum over ranks
// tells both.
constexpr double kOther = 1 << 20;

}  // namespace

double Interruption::word() const {
  const int signal = asked();
  return signal == 0 ? 0 : signal == SIGINT ? 1 : kOther;
}

void Interruption::hear(double sum) {
  if (sum > 0) hear(sum >= kOther ? SIGTERM : SIGINT);
}

void Interruption::hear(int signal) {
  int none = 0;
  if (signal != 0) agreed_.compare_exchange_strong(none, signal);
}

Status Interruption::end(std::int64_t done) {
  saved_ = done;
  return {Code::kCancelled,
          format("ended by signal %d after step %lld", agreed(), static_cast<long long>(done))};
}

WithWord::WithWord(std::span<double> values, Interruption* interruption)
    : values_(values), interruption_(interruption) {
  if (interruption == nullptr) return;
  all_.assign(values.begin(), values.end());
  all_.push_back(interruption->word());
}

void WithWord::arrived() {
  if (interruption_ == nullptr) return;
  std::copy_n(all_.begin(), values_.size(), values_.begin());
  interruption_->hear(all_.back());
}

}  // namespace gradwire
