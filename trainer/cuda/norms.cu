// Layer norm and batch norm.
#include <cmath>

#include "trainer/cuda/cuda_layer_kernels.h"
#include "trainer/cuda/each.h"
#include "trainer/cuda/ordered_sums.h"

namespace gradwire::cuda {
namespace {

constexpr double kNormEpsilon = 1e-5;  // as LayerNorm and BatchNorm2d have it

// A warp to each row of features: eight rows to a block.
struct FeatureWarps {
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kWarps = kThreads / 32;
  struct Shared {
    double sums[kWarps][32];
  };

  std::int64_t rows;
  std::int64_t width;
  const float* params;
  const float* x;

  // The sum of term(i) over the row's features, on every lane.
  template <class Block, typename Term>
  GW_DEVICE double sum(Block& block, Shared& shared, const Term& term) const {
    double mine = 0;
    for (std::int64_t i = block.lane(); i < width; i += 32) mine += static_cast<double>(term(i));
    return sum_of_warp(block, shared.sums[block.warp()], mine);
  }
};

struct LayerNormRows : FeatureWarps {
  float* saved;
  float* y;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t p = block.block() * kWarps + block.warp();
    if (p >= rows) return;
    const float* row = x + p * width;
    const auto count = static_cast<double>(width);
    const double mean = sum(block, shared, [row](std::int64_t i) { return row[i]; }) / count;
    const double variance = sum(block, shared,
                                [row, mean](std::int64_t i) {
                                  const double off = static_cast<double>(row[i]) - mean;
                                  return off * off;
                                }) /
                            count;
    const auto m = static_cast<float>(mean);
    const auto scale = static_cast<float>(1 / std::sqrt(variance + kNormEpsilon));
    if (block.lane() == 0) {
      saved[2 * p] = m;
      saved[2 * p + 1] = scale;
    }
    for (std::int64_t i = block.lane(); i < width; i += 32) {
      y[p * width + i] = (row[i] - m) * scale * params[i] + params[width + i];
    }
  }
};

struct LayerNormBackRows : FeatureWarps {
  const float* saved;
  const float* dy;
  float* dx;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t p = block.block() * kWarps + block.warp();
    if (p >= rows) return;
    const float* row = x + p * width;
    const float* d = dy + p * width;
    const float* weight = params;
    const float m = saved[2 * p];
    const float scale = saved[2 * p + 1];
    const auto count = static_cast<double>(width);
    const auto mean_g = static_cast<float>(
        sum(block, shared, [=](std::int64_t i) { return d[i] * weight[i]; }) / count);
    const auto mean_gz = static_cast<float>(
        sum(block, shared,
            [=](std::int64_t i) { return d[i] * weight[i] * ((row[i] - m) * scale); }) /
        count);
    for (std::int64_t i = block.lane(); i < width; i += 32) {
      dx[p * width + i] = scale * (d[i] * weight[i] - mean_g - (row[i] - m) * scale * mean_gz);
    }
  }
};

// A block for 32 neighbouring features: 16 threads to each, which take rows in turn.
struct LayerNormParams {
  static constexpr unsigned kColumns = 32;
  static constexpr unsigned kTurns = 16;
  static constexpr unsigned kThreads = kColumns * kTurns;
  struct Shared {
    float weight[kTurns][kColumns];
    float bias[kTurns][kColumns];
  };

  std::int64_t rows;
  std::int64_t width;
  const float* saved;
  const float* x;
  const float* dy;
  float* grads;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const unsigned turn = block.warp();
    const std::int64_t i = block.block() * kColumns + block.lane();
    float weight = 0;
    float bias = 0;
    for (std::int64_t p = turn; i < width && p < rows; p += kTurns) {
      const float d = dy[p * width + i];
      weight += d * ((x[p * width + i] - saved[2 * p]) * saved[2 * p + 1]);
      bias += d;
    }
    shared.weight[turn][block.lane()] = weight;
    shared.bias[turn][block.lane()] = bias;
    block.barrier();
    if (turn > 0 || i >= width) return;
    for (unsigned other = 1; other < kTurns; ++other) {
      weight += shared.weight[other][block.lane()];
      bias += shared.bias[other][block.lane()];
    }
    grads[i] = weight;
    grads[width + i] = bias;
  }
};

// A block to each channel.
struct ChannelBlocks {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    double sums[kThreads];
  };

  ChannelShape shape;

  // The sum of term(index) over the channel's values, on every thread.
  template <class Block, typename Term>
  GW_DEVICE double sum(Block& block, Shared& shared, const Term& term) const {
    const std::int64_t count = shape.rows * shape.plane;
    double mine = 0;
    for (std::int64_t i = block.thread(); i < count; i += kThreads) {
      mine += static_cast<double>(term(place(block.block(), i)));
    }
    return sum_of_block<kThreads>(block, shared.sums, mine);
  }
  // Of the channel's i-th value.
  GW_DEVICE std::int64_t place(std::int64_t channel, std::int64_t i) const {
    return (i / shape.plane * shape.channels + channel) * shape.plane + i % shape.plane;
  }
};

struct BatchMeasure : ChannelBlocks {
  const float* x;
  float* saved;
  double* statistics;  // null: not collected

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const float* from = x;
    const double mean = sum(block, shared, [from](std::int64_t i) { return from[i]; }) /
                        static_cast<double>(shape.rows * shape.plane);
    const double around = sum(block, shared, [from, mean](std::int64_t i) {
      const double off = static_cast<double>(from[i]) - mean;
      return off * off;
    });
    if (block.thread() > 0) return;
    // The channel is looked up, and the total made of the mean again, so that neither stays in
    // registers through the second sum: sm_80 and sm_90 have none to spare, and spill.
    const std::int64_t c = block.block();
    const auto count = static_cast<double>(shape.rows * shape.plane);
    saved[c] = static_cast<float>(mean);
    saved[shape.channels + c] = static_cast<float>(1 / std::sqrt(around / count + kNormEpsilon));
    if (statistics == nullptr) return;
    if (c == 0) statistics[0] += count;
    const double total = mean * count;
    statistics[1 + c] += total;
    statistics[1 + shape.channels + c] += around + mean * total;
  }
};

struct BatchNormForward {
  ChannelShape shape;
  const float* params;
  const float* from;
  bool running;
  const float* x;
  float* y;
  GW_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t c = i / shape.plane % shape.channels;
    float scale = from[shape.channels + c];
    if (running) {
      scale = static_cast<float>(1 / std::sqrt(static_cast<double>(scale) + kNormEpsilon));
    }
    y[i] = (x[i] - from[c]) * scale * params[c] + params[shape.channels + c];
  }
};

// What both ways back add up.
struct BatchNormSums : ChannelBlocks {
  const float* saved;
  const float* x;
  const float* dy;

  struct Sums {
    double dy;
    double dy_z;
  };
  template <class Block>
  GW_DEVICE Sums gradient_sums(Block& block, Shared& shared) const {
    const float* from = x;
    const float* d = dy;
    const float mean = saved[block.block()];
    const float scale = saved[shape.channels + block.block()];
    const double plain = sum(block, shared, [d](std::int64_t i) { return d[i]; });
    return {plain,
            sum(block, shared, [=](std::int64_t i) { return d[i] * ((from[i] - mean) * scale); })};
  }
};

struct BatchNormParams : BatchNormSums {
  float* grads;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const Sums sums = gradient_sums(block, shared);
    if (block.thread() > 0) return;
    grads[block.block()] = static_cast<float>(sums.dy_z);
    grads[shape.channels + block.block()] = static_cast<float>(sums.dy);
  }
};

struct BatchNormBack : BatchNormSums {
  const float* params;
  float* dx;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t c = block.block();
    const Sums sums = gradient_sums(block, shared);
    const std::int64_t count = shape.rows * shape.plane;
    const auto mean_dy = static_cast<float>(sums.dy / static_cast<double>(count));
    const auto mean_dy_z = static_cast<float>(sums.dy_z / static_cast<double>(count));
    const float mean = saved[c];
    const float scale = saved[shape.channels + c];
    const float factor = params[c] * scale;
    for (std::int64_t i = block.thread(); i < count; i += kThreads) {
      const std::int64_t at = place(c, i);
      dx[at] = factor * (dy[at] - mean_dy - (x[at] - mean) * scale * mean_dy_z);
    }
  }
};

// Sums of float values in double, as biases of convolutions want them.
struct SumChannels : ChannelBlocks {
  const float* values;
  float* sums;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const float* from = values;
    const double total = sum(block, shared, [from](std::int64_t i) { return from[i]; });
    if (block.thread() == 0) sums[block.block()] = static_cast<float>(total);
  }
};

FeatureWarps feature_warps(std::int64_t width, std::span<const float> params,
                           std::span<const float> x) {
  return {count_of(x) / width, width, params.data(), x.data()};
}

}  // namespace

void CudaLayerKernels::layer_norm(std::int64_t width, In params, In x, Out saved, Out y) {
  const LayerNormRows rows{feature_warps(width, params, x), saved.data(), y.data()};
  enqueue([&] {
    return launch("layer_norm", rows, blocks_for(rows.rows, FeatureWarps::kWarps), stream_);
  });
}

void CudaLayerKernels::layer_norm_back(std::int64_t width, In params, In saved, In x, In dy,
                                       Out dx) {
  const LayerNormBackRows rows{feature_warps(width, params, x), saved.data(), dy.data(), dx.data()};
  enqueue([&] {
    return launch("layer_norm_back", rows, blocks_for(rows.rows, FeatureWarps::kWarps), stream_);
  });
}

void CudaLayerKernels::layer_norm_params(std::int64_t width, In saved, In x, In dy, Out grads) {
  const LayerNormParams kernel{count_of(x) / width, width,       saved.data(), x.data(),
                               dy.data(),           grads.data()};
  enqueue([&] {
    return launch("layer_norm_params", kernel, blocks_for(width, LayerNormParams::kColumns),
                  stream_);
  });
}

void CudaLayerKernels::batch_measure(const ChannelShape& shape, In x, Out saved,
                                     std::span<double> statistics) {
  const BatchMeasure kernel{{shape}, x.data(), saved.data(), statistics.data()};
  enqueue([&] { return launch("batch_measure", kernel, shape.channels, stream_); });
}

void CudaLayerKernels::batch_norm(const ChannelShape& shape, In params, In from, bool running, In x,
                                  Out y) {
  const BatchNormForward each{shape, params.data(), from.data(), running, x.data(), y.data()};
  enqueue([&] { return for_each("batch_norm", count_of(x), each, stream_); });
}

void CudaLayerKernels::batch_norm_params(const ChannelShape& shape, In saved, In x, In dy,
                                         Out grads) {
  const BatchNormParams kernel{{{shape}, saved.data(), x.data(), dy.data()}, grads.data()};
  enqueue([&] { return launch("batch_norm_params", kernel, shape.channels, stream_); });
}

void CudaLayerKernels::batch_norm_back(const ChannelShape& shape, In params, In saved, In x, In dy,
                                       Out dx) {
  const BatchNormBack kernel{
      {{shape}, saved.data(), x.data(), dy.data()}, params.data(), dx.data()};
  enqueue([&] { return launch("batch_norm_back", kernel, shape.channels, stream_); });
}

void CudaLayerKernels::sum_channels(const ChannelShape& shape, In values, Out sums) {
  const SumChannels kernel{{shape}, values.data(), sums.data()};
  enqueue([&] { return launch("sum_channels", kernel, shape.channels, stream_); });
}

}  // namespace gradwire::cuda
