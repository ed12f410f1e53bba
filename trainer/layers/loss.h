// From what a model says and what is right: a number and its derivative.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/layers/cross_entropy.h"

namespace gradwire {

enum class Loss : std::uint8_t {
  kCrossEntropy,  // of the softmax
  kSquares,       // half the squared distance to the one-hot label
};

// outputs: (rows, classes), labels: (rows) of 0..classes-1. Returns the mean over rows;
// doutputs (rows, classes) = its derivative, skipped if empty.
template <typename T>
double squared_error(std::span<const T> outputs, std::span<const std::uint32_t> labels,
                     std::span<T> doutputs);

template <typename T>
double mean_loss(Loss loss, std::span<const T> outputs, std::span<const std::uint32_t> labels,
                 std::span<T> doutputs) {
  return loss == Loss::kSquares ? squared_error<T>(outputs, labels, doutputs)
                                : cross_entropy<T>(outputs, labels, doutputs);
}

}  // namespace gradwire
