// Slow layers written straight from their definitions, in double and without matrix products: the
// oracle of trainer/layers.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "trainer/layers/layer.h"

namespace gradwire::reference {

using Values = std::vector<double>;

// y[r][o] = b[o] + sum over i of x[r][i] W[o][i]; params: W then b.
inline Values linear(const Values& x, const Values& params, std::int64_t in, std::int64_t out) {
  const auto rows = static_cast<std::int64_t>(x.size()) / in;
  Values y;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = params[static_cast<std::size_t>(out * in + o)];
      for (std::int64_t i = 0; i < in; ++i) {
        sum +=
            x[static_cast<std::size_t>(r * in + i)] * params[static_cast<std::size_t>(o * in + i)];
      }
      y.push_back(sum);
    }
  }
  return y;
}

// y[r][o][h][w] = b[o] + sum over c, i, j of x[r][c][h + i - k/2][w + j - k/2] W[o][c][i][j], zero
// outside the image.
inline Values conv2d(const Values& x, const Values& params, SampleShape in, std::int64_t out,
                     std::int64_t k) {
  const auto rows = static_cast<std::int64_t>(x.size()) / in.elems();
  const auto pixel = [&](std::int64_t r, std::int64_t c, std::int64_t h, std::int64_t w) {
    if (h < 0 || h >= in.height || w < 0 || w >= in.width) return 0.0;
    return x[static_cast<std::size_t>(((r * in.channels + c) * in.height + h) * in.width + w)];
  };
  Values y;
  for (std::int64_t n = 0; n < rows * out * in.height * in.width; ++n) {
    const std::int64_t w = n % in.width;
    const std::int64_t h = n / in.width % in.height;
    const std::int64_t o = n / in.width / in.height % out;
    const std::int64_t r = n / in.width / in.height / out;
    double sum = params[static_cast<std::size_t>(out * in.channels * k * k + o)];
    for (std::int64_t m = 0; m < in.channels * k * k; ++m) {
      const std::int64_t c = m / (k * k);
      sum += pixel(r, c, h + m / k % k - k / 2, w + m % k - k / 2) *
             params[static_cast<std::size_t>(o * in.channels * k * k + m)];
    }
    y.push_back(sum);
  }
  return y;
}

// The mean over rows of -log softmax(logits)[label].
inline double cross_entropy(const Values& logits, const std::vector<std::uint8_t>& labels) {
  const std::size_t classes = logits.size() / labels.size();
  double total = 0;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(logits[r * classes + c]);
    total -= std::log(std::exp(logits[r * classes + labels[r]]) / sum);
  }
  return total / static_cast<double>(labels.size());
}

}  // namespace gradwire::reference
