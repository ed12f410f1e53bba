// Slow layers written straight from their definitions, in double and without matrix products: the
// oracle of trainer/layers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/layers/conv2d.h"

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

// y[r][o][h][w] = b[o] + sum over c, i, j of x[r][c][h s + i - p][w s + j - p] W[o][c][i][j], zero
// outside the image, over the channels c of o's group.
inline Values conv2d(const Values& x, const Values& params, SampleShape in, std::int64_t out,
                     const ConvOptions& options) {
  const auto [k, stride, padding, groups, has_bias] = options;
  const std::int64_t high = (in.height + 2 * padding - k) / stride + 1;
  const std::int64_t wide = (in.width + 2 * padding - k) / stride + 1;
  const std::int64_t depth = in.channels / groups;
  const auto rows = static_cast<std::int64_t>(x.size()) / in.elems();
  const auto pixel = [&](std::int64_t r, std::int64_t c, std::int64_t h, std::int64_t w) {
    if (h < 0 || h >= in.height || w < 0 || w >= in.width) return 0.0;
    return x[static_cast<std::size_t>(((r * in.channels + c) * in.height + h) * in.width + w)];
  };
  Values y;
  for (std::int64_t n = 0; n < rows * out * high * wide; ++n) {
    const std::int64_t w = n % wide;
    const std::int64_t h = n / wide % high;
    const std::int64_t o = n / wide / high % out;
    const std::int64_t r = n / wide / high / out;
    const std::int64_t first = o / (out / groups) * depth;
    double sum = has_bias ? params[static_cast<std::size_t>(out * depth * k * k + o)] : 0;
    for (std::int64_t m = 0; m < depth * k * k; ++m) {
      sum += pixel(r, first + m / (k * k), h * stride + m / k % k - padding,
                   w * stride + m % k - padding) *
             params[static_cast<std::size_t>(o * depth * k * k + m)];
    }
    y.push_back(sum);
  }
  return y;
}

// Derivatives by x and by the parameters of the sum of dy * conv2d(x), by linearity: the
// convolution of unit vectors. Slow.
struct Gradients {
  Values dx;
  Values grads;
};
inline Gradients conv2d_gradients(const Values& x, const Values& params, const Values& dy,
                                  SampleShape in, std::int64_t out, const ConvOptions& options) {
  const auto weighted = [&](const Values& at, const Values& with) {
    const Values y = conv2d(at, with, in, out, options);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  Gradients found;
  Values unbiased = params;
  const auto biases = options.bias ? static_cast<std::ptrdiff_t>(out) : 0;
  std::fill(unbiased.end() - biases, unbiased.end(), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    Values unit(x.size());
    unit[i] = 1;
    found.dx.push_back(weighted(unit, unbiased));
  }
  for (std::size_t i = 0; i < params.size(); ++i) {
    Values unit(params.size());
    unit[i] = 1;
    found.grads.push_back(weighted(x, unit));
  }
  return found;
}

// One head after the other, one number after the other: y[i] = sum over j <= i of p[j] v[j],
// p = softmax of q[i] . k[j] / sqrt(size). x: (rows, positions, 3 width).
inline Values causal_attention(const Values& x, std::int64_t positions, std::int64_t width,
                               std::int64_t heads) {
  const std::int64_t size = width / heads;
  const auto rows = static_cast<std::int64_t>(x.size()) / (3 * positions * width);
  const auto at = [&](std::int64_t r, std::int64_t position, std::int64_t part, std::int64_t f) {
    return x[static_cast<std::size_t>(((r * positions + position) * 3 + part) * width + f)];
  };
  Values y(static_cast<std::size_t>(rows * positions * width));
  for (std::int64_t n = 0; n < rows * positions * heads; ++n) {
    const std::int64_t first = n % heads * size;
    const std::int64_t i = n / heads % positions;
    const std::int64_t r = n / heads / positions;
    Values p;
    double sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      double score = 0;
      for (std::int64_t f = first; f < first + size; ++f) score += at(r, i, 0, f) * at(r, j, 1, f);
      p.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
      sum += p.back();
    }
    for (std::int64_t f = first; f < first + size; ++f) {
      double out = 0;
      for (std::int64_t j = 0; j <= i; ++j) {
        out += p[static_cast<std::size_t>(j)] / sum * at(r, j, 2, f);
      }
      y[static_cast<std::size_t>((r * positions + i) * width + f)] = out;
    }
  }
  return y;
}

// The mean over rows of -log softmax(logits)[label].
inline double cross_entropy(const Values& logits, const std::vector<std::uint32_t>& labels) {
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
