// Softmax and cross-entropy in one, and the count of right answers.
#pragma once

#include <cstdint>
#include <span>

namespace gradwire {

// logits: (rows, classes), labels: (rows) of 0..classes-1. Returns the mean over rows of
// log(sum over c of exp(logits[c])) - logits[label], computed in double with the row's maximum
// taken out, so that large logits do not overflow. dlogits (rows, classes) = its derivative:
// (softmax - one-hot) / rows; skipped if empty.
template <typename T>
double cross_entropy(std::span<const T> logits, std::span<const std::uint32_t> labels,
                     std::span<T> dlogits);

// Rows whose first largest logit is the label's. A row of NaN says class 0, so that
// a diverged model scores like a constant one.
template <typename T>
std::int64_t count_correct(std::span<const T> logits, std::span<const std::uint32_t> labels);

}  // namespace gradwire
