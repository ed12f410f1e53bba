// What layers ask of a device: the arithmetic that they do themselves where the host computes.
//
// Calls enqueue work on one stream and return; spans are of the device's memory, without gaps, and
// results overlap no input unless it is said. Sums have an order of their own that depends on
// sizes alone: the same call on the same values gives the same bits. It is the host's order where
// that costs nothing; where it is not, values differ by rounding.
#pragma once

#include <cstdint>
#include <span>

#include "base/philox.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"

namespace gradwire {

// A row-major matrix as an operand.
template <typename T>
struct MatrixOperand {
  const T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool transposed = false;  // what is multiplied is its transpose
};

// Of images: `inputs` and `outputs` channels of one group at a time.
struct ConvolutionShape {
  std::int64_t channels = 0;  // of the whole input
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t out_channels = 0;  // of the whole output
  std::int64_t out_height = 0;
  std::int64_t out_width = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;
  constexpr std::int64_t inputs() const { return channels / groups; }
  constexpr std::int64_t outputs() const { return out_channels / groups; }
  constexpr std::int64_t depth() const { return inputs() * kernel * kernel; }
  constexpr std::int64_t plane() const { return out_height * out_width; }
};

// Windows of planes: as MaxPool2d and AvgPool2d say.
struct PoolShape {
  std::int64_t planes = 0;  // rows * channels
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t out_height = 0;
  std::int64_t out_width = 0;
  std::int64_t window_h = 1;
  std::int64_t window_w = 1;
  std::int64_t stride_h = 1;
  std::int64_t stride_w = 1;
};

// (rows, channels, plane).
struct ChannelShape {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  std::int64_t plane = 0;
};

struct AttentionShape {
  std::int64_t rows = 0;
  std::int64_t positions = 0;
  std::int64_t width = 0;
  std::int64_t heads = 1;
};

// Outputs of some classes for each label, (labels.size(), classes here), where other ranks have
// those of the others: `first` is the number of the first one here, `all` of how many.
template <typename T>
struct ClassPart {
  std::span<const T> outputs;
  std::span<const std::uint32_t> labels;
  std::int64_t first = 0;
  std::int64_t all = 0;
};

// What a dropout does to the elements from `first` on of the step's global batch.
struct DropoutMask {
  RandomStream draws;
  std::uint64_t first = 0;
  std::uint32_t dropped = 0;  // words below it
  float scale = 1;            // of what is left
};

// Made by make_layer_kernels(). Used by one thread at a time.
template <typename T>
class LayerKernels {
 public:
  virtual ~LayerKernels() = default;
  virtual Stream stream() const = 0;
  // The first error of a call; calls after it do nothing.
  virtual const Status& status() const = 0;

  // c = a b
  virtual void product(const MatrixOperand<T>& a, const MatrixOperand<T>& b, T* c) = 0;
  // Every row of (rows, row.size()) += row.
  virtual void add_row(std::span<const T> row, std::span<T> matrix) = 0;
  // sums = the sum of all rows of (rows, sums.size()).
  virtual void sum_rows(std::span<const T> matrix, std::span<T> sums) = 0;

  virtual void copy(std::span<const T> from, std::span<T> to) = 0;
  virtual void fill_zeros(std::span<T> values) = 0;
  virtual void add(std::span<const T> values, std::span<T> sum) = 0;  // sum += values
  virtual void scale(std::span<T> values, double factor) = 0;
  // from: (outer, inner, n), to: (inner, outer, n).
  virtual void swap_blocks(std::int64_t outer, std::int64_t inner, std::span<const T> from,
                           std::span<T> to) = 0;
  virtual void relu(std::span<const T> x, std::span<T> y) = 0;
  virtual void relu_back(std::span<const T> x, std::span<const T> dy, std::span<T> dx) = 0;
  virtual void gelu(std::span<const T> x, std::span<T> y) = 0;
  virtual void gelu_back(std::span<const T> x, std::span<const T> dy, std::span<T> dx) = 0;
  virtual void dropout(const DropoutMask& mask, std::span<const T> from, std::span<T> to) = 0;

  // As LayerNorm: rows of `width` features, params (2, width), saved (rows, 2).
  virtual void layer_norm(std::int64_t width, std::span<const T> params, std::span<const T> x,
                          std::span<T> saved, std::span<T> y) = 0;
  virtual void layer_norm_back(std::int64_t width, std::span<const T> params,
                               std::span<const T> saved, std::span<const T> x,
                               std::span<const T> dy, std::span<T> dx) = 0;
  virtual void layer_norm_params(std::int64_t width, std::span<const T> saved, std::span<const T> x,
                                 std::span<const T> dy, std::span<T> grads) = 0;

  // As BatchNorm2d: saved (2, channels); `statistics` (1 + 2 channels), empty: not collected.
  virtual void batch_measure(const ChannelShape& shape, std::span<const T> x, std::span<T> saved,
                             std::span<double> statistics) = 0;
  // `from`: saved, or where `running` means and variances.
  virtual void batch_norm(const ChannelShape& shape, std::span<const T> params,
                          std::span<const T> from, bool running, std::span<const T> x,
                          std::span<T> y) = 0;
  virtual void batch_norm_params(const ChannelShape& shape, std::span<const T> saved,
                                 std::span<const T> x, std::span<const T> dy,
                                 std::span<T> grads) = 0;
  virtual void batch_norm_back(const ChannelShape& shape, std::span<const T> params,
                               std::span<const T> saved, std::span<const T> x,
                               std::span<const T> dy, std::span<T> dx) = 0;

  // columns (rows plane, depth): the windows of group `group` of `rows` images.
  virtual void windows(const ConvolutionShape& shape, std::int64_t rows, std::int64_t group,
                       std::span<const T> x, std::span<T> columns) = 0;
  // The way back: dx of that group, every element the sum of its windows'.
  virtual void windows_back(const ConvolutionShape& shape, std::int64_t rows, std::int64_t group,
                            std::span<const T> columns, std::span<T> dx) = 0;
  // pixels (rows plane, outputs) to the group's channels of y, plus bias (out_channels) unless it
  // is empty; and dy's channels to pixels.
  virtual void to_channels(const ConvolutionShape& shape, std::int64_t rows, std::int64_t group,
                           std::span<const T> pixels, std::span<const T> bias, std::span<T> y) = 0;
  virtual void to_pixels(const ConvolutionShape& shape, std::int64_t rows, std::int64_t group,
                         std::span<const T> dy, std::span<T> pixels) = 0;
  // sums (channels) over rows and planes.
  virtual void sum_channels(const ChannelShape& shape, std::span<const T> values,
                            std::span<T> sums) = 0;

  virtual void max_pool(const PoolShape& shape, std::span<const T> x, std::span<T> y) = 0;
  virtual void max_pool_back(const PoolShape& shape, std::span<const T> x, std::span<const T> dy,
                             std::span<T> dx) = 0;
  virtual void avg_pool(const PoolShape& shape, std::span<const T> x, std::span<T> y) = 0;
  virtual void avg_pool_back(const PoolShape& shape, std::span<const T> dy, std::span<T> dx) = 0;

  // tokens: (rows, positions) numbers below the vocabulary, as T; vectors (rows, positions, width).
  virtual void embed(std::span<const T> tokens, std::int64_t positions, std::int64_t width,
                     std::span<const T> token, std::span<const T> position, std::span<T> y) = 0;
  // token (vocabulary, width), position (positions, width).
  virtual void embed_params(std::span<const T> tokens, std::int64_t width, std::span<const T> dy,
                            std::span<T> token, std::span<T> position) = 0;

  // As VocabularyEmbedding: the rows of tokens from number `first` on that `token`, (tokens here,
  // width), has; of others' zeros. There and back.
  virtual void look_up(std::span<const T> tokens, std::int64_t first, std::int64_t width,
                       std::span<const T> token, std::span<T> y) = 0;
  virtual void look_up_params(std::span<const T> tokens, std::int64_t first, std::int64_t width,
                              std::span<const T> dy, std::span<T> token) = 0;

  // As CausalAttention; scratch: 2 rows heads positions^2.
  virtual void attention(const AttentionShape& shape, std::span<const T> x, std::span<T> scratch,
                         std::span<T> saved, std::span<T> y) = 0;
  virtual void attention_back(const AttentionShape& shape, std::span<const T> x,
                              std::span<const T> saved, std::span<const T> dy, std::span<T> scratch,
                              std::span<T> dx) = 0;

  // outputs (labels.size(), classes). found[0] = the mean over labels of cross_entropy() or
  // squared_error(), found[1] = how many labels are the first largest output; by_label: room for
  // two numbers a label. doutputs as there, skipped if empty.
  virtual void cross_entropy(std::span<const T> outputs, std::span<const std::uint32_t> labels,
                             std::span<T> doutputs, std::span<double> by_label,
                             std::span<double> found) = 0;
  virtual void squared_error(std::span<const T> outputs, std::span<const std::uint32_t> labels,
                             std::span<T> doutputs, std::span<double> by_label,
                             std::span<double> found) = 0;

  // cross_entropy() of a part of the classes, in three calls, between which ranks exchange what
  // they wrote. maxima: of each label's outputs here; then the largest of all ranks'.
  virtual void class_maxima(const ClassPart<T>& part, std::span<T> maxima) = 0;
  // sums: each label's exponentials below its maximum, then its own output where that is here, else
  // 0; then the sums of all ranks'. said: the number of the first class that has the maximum,
  // negative, -all where none does; then the largest of all ranks'. Empty: hits are not wanted.
  virtual void class_sums(const ClassPart<T>& part, std::span<const T> maxima,
                          std::span<double> sums, std::span<double> said) = 0;
  virtual void class_losses(const ClassPart<T>& part, std::span<const T> maxima,
                            std::span<const double> sums, std::span<const double> said,
                            std::span<T> doutputs, std::span<double> by_label,
                            std::span<double> found) = 0;
};

}  // namespace gradwire
