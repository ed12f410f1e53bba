// Pools. A thread writes one value: what an input's derivative is, it gathers from its windows.
#include <cmath>

#include "trainer/cuda/cuda_layer_kernels.h"
#include "trainer/cuda/each.h"
#include "trainer/layers/fixed_sum.h"

namespace gradwire::cuda {
namespace {

struct MaxPoolForward {
  PoolShape s;
  const float* x;
  float* y;

  // The place of the first maximum of the window at (h, w) of a plane; NaN wins.
  GW_DEVICE std::int64_t winner(std::int64_t plane, std::int64_t h, std::int64_t w) const {
    const std::int64_t corner = (plane * s.height + h * s.stride_h) * s.width + w * s.stride_w;
    std::int64_t best = corner;
    for (std::int64_t line = 0; line < s.window_h; ++line) {
      const std::int64_t first = corner + line * s.width;
      for (std::int64_t at = first; at < first + s.window_w; ++at) {
        if (x[at] > x[best] || (std::isnan(x[at]) && !std::isnan(x[best]))) best = at;
      }
    }
    return best;
  }
  GW_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t w = i % s.out_width;
    const std::int64_t h = i / s.out_width % s.out_height;
    y[i] = x[winner(i / (s.out_width * s.out_height), h, w)];
  }
};

// The windows over a place along one axis are [begin, end).
struct Covering {
  std::int64_t begin;
  std::int64_t end;
  GW_DEVICE Covering(std::int64_t place, std::int64_t window, std::int64_t stride,
                     std::int64_t outputs)
      : begin(place < window ? 0 : (place - window) / stride + 1), end(place / stride + 1) {
    if (end > outputs) end = outputs;
  }
};

struct MaxPoolBack {
  MaxPoolForward pool;
  const float* dy;
  float* dx;
  GW_DEVICE void operator()(std::int64_t i) const {
    const PoolShape& s = pool.s;
    const std::int64_t plane = i / (s.width * s.height);
    const Covering lines(i / s.width % s.height, s.window_h, s.stride_h, s.out_height);
    const Covering cells(i % s.width, s.window_w, s.stride_w, s.out_width);
    const bool overlap = s.stride_h < s.window_h;
    float sum = 0;
    for (std::int64_t h = lines.begin; h < lines.end; ++h) {
      for (std::int64_t w = cells.begin; w < cells.end; ++w) {
        if (pool.winner(plane, h, w) != i) continue;
        const float d = dy[(plane * s.out_height + h) * s.out_width + w];
        sum = overlap ? sum + d : d;  // copied where it is alone: -0 stays -0
      }
    }
    dx[i] = sum;
  }
};

struct AvgPoolForward {
  PoolShape s;
  const float* x;
  float* y;
  GW_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t w = i % s.out_width;
    const std::int64_t h = i / s.out_width % s.out_height;
    const std::int64_t plane = i / (s.out_width * s.out_height);
    const float* corner = x + (plane * s.height + h * s.window_h) * s.width + w * s.window_w;
    float sum = 0;
    for (std::int64_t line = 0; line < s.window_h; ++line) {
      sum += fixed_sum(corner + line * s.width, s.window_w);
    }
    y[i] = sum * (1.0F / static_cast<float>(s.window_h * s.window_w));
  }
};

struct AvgPoolBack {
  PoolShape s;
  const float* dy;
  float* dx;
  GW_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t w = i % s.width / s.window_w;
    const std::int64_t h = i / s.width % s.height / s.window_h;
    const std::int64_t plane = i / (s.width * s.height);
    const bool inside = h < s.out_height && w < s.out_width;
    const float share = 1.0F / static_cast<float>(s.window_h * s.window_w);
    dx[i] = inside ? dy[(plane * s.out_height + h) * s.out_width + w] * share : 0;
  }
};

}  // namespace

void CudaLayerKernels::max_pool(const PoolShape& shape, In x, Out y) {
  const MaxPoolForward each{shape, x.data(), y.data()};
  enqueue([&] { return for_each("max_pool", count_of(y), each, stream_); });
}

void CudaLayerKernels::max_pool_back(const PoolShape& shape, In x, In dy, Out dx) {
  const MaxPoolBack each{{shape, x.data(), nullptr}, dy.data(), dx.data()};
  enqueue([&] { return for_each("max_pool_back", count_of(dx), each, stream_); });
}

void CudaLayerKernels::avg_pool(const PoolShape& shape, In x, Out y) {
  const AvgPoolForward each{shape, x.data(), y.data()};
  enqueue([&] { return for_each("avg_pool", count_of(y), each, stream_); });
}

void CudaLayerKernels::avg_pool_back(const PoolShape& shape, In dy, Out dx) {
  const AvgPoolBack each{shape, dy.data(), dx.data()};
  enqueue([&] { return for_each("avg_pool_back", count_of(dx), each, stream_); });
}

}  // namespace gradwire::cuda
