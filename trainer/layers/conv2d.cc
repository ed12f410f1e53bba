#include "trainer/layers/conv2d.h"

#include <algorithm>

#include "base/check.h"
#include "trainer/layers/block_part.h"
#include "trainer/layers/fixed_sum.h"
#include "trainer/layers/matrix_map.h"

namespace gradwire {
namespace {

// Along one axis an output at o reads the input at o * stride + shift: the outputs for which that
// lies inside are [begin, end).
struct Overlap {
  std::int64_t begin;
  std::int64_t end;
  Overlap(std::int64_t inputs, std::int64_t outputs, std::int64_t stride, std::int64_t shift)
      : begin(std::clamp<std::int64_t>((stride - 1 - shift) / stride, 0, outputs)),
        end(std::clamp<std::int64_t>((inputs - shift + stride - 1) / stride, begin, outputs)) {}
};

}  // namespace

template <typename T>
Conv2d<T>::Conv2d(SampleShape in, std::int64_t out_channels, ConvOptions options)
    : in_(in),
      options_(options),
      output_{out_channels, (in.height + 2 * options.padding - options.kernel) / options.stride + 1,
              (in.width + 2 * options.padding - options.kernel) / options.stride + 1} {
  GW_CHECK(in.height + 2 * options.padding >= options.kernel);
  GW_CHECK(in.width + 2 * options.padding >= options.kernel);
  GW_CHECK(in.channels % options.groups == 0 && out_channels % options.groups == 0);
}

template <typename T>
ParameterTable Conv2d<T>::parameters() const {
  const std::int64_t k = options_.kernel;
  ParameterTable table{{"weight", Shape{{output_.channels, in_channels(), k, k}, 4}, depth(), 0}};
  if (options_.bias) {
    table.push_back({"bias", Shape::vector(output_.channels), depth(), output_.channels * depth()});
  }
  return table;
}

template <typename T>
void Conv2d<T>::im2col(const T* image, T* columns) const {
  const auto [kernel, stride, padding, groups, bias] = options_;
  T* row = columns;
  for (std::int64_t d = 0; d < depth(); ++d, row += plane()) {
    const std::int64_t channel = d / (kernel * kernel);
    const std::int64_t down = d / kernel % kernel - padding;
    const std::int64_t right = d % kernel - padding;
    const Overlap lines(in_.height, output_.height, stride, down);
    const Overlap cells(in_.width, output_.width, stride, right);
    const T* source = image + channel * in_.height * in_.width;
    std::fill_n(row, plane(), T(0));
    for (std::int64_t h = lines.begin; h < lines.end; ++h) {
      const T* line = source + (h * stride + down) * in_.width + right;
      T* target = row + h * output_.width;
      if (stride == 1) {
        std::copy(line + cells.begin, line + cells.end, target + cells.begin);
      } else {
        for (std::int64_t w = cells.begin; w < cells.end; ++w) target[w] = line[w * stride];
      }
    }
  }
}

// Adds in the order of the columns' rows, so that every sum has one fixed order.
template <typename T>
void Conv2d<T>::col2im(const T* columns, T* image) const {
  const auto [kernel, stride, padding, groups, bias] = options_;
  std::fill_n(image, in_channels() * in_.height * in_.width, T(0));
  const T* row = columns;
  for (std::int64_t d = 0; d < depth(); ++d, row += plane()) {
    const std::int64_t channel = d / (kernel * kernel);
    const std::int64_t down = d / kernel % kernel - padding;
    const std::int64_t right = d % kernel - padding;
    const Overlap lines(in_.height, output_.height, stride, down);
    const Overlap cells(in_.width, output_.width, stride, right);
    for (std::int64_t h = lines.begin; h < lines.end; ++h) {
      T* target = image + (channel * in_.height + h * stride + down) * in_.width + right;
      const T* source = row + h * output_.width;
      for (std::int64_t w = cells.begin; w < cells.end; ++w) target[w * stride] += source[w];
    }
  }
}

template <typename T>
void Conv2d<T>::forward(const LayerPass<T>& pass) const {
  if (pass.device != nullptr) return forward_there(pass);
  const std::int64_t out = out_channels();
  const T* bias = pass.params.data() + output_.channels * depth();
  for (std::int64_t r = 0; r < pass.rows * options_.groups; ++r) {
    const std::int64_t group = r % options_.groups;
    im2col(pass.x.data() + r * in_channels() * in_.height * in_.width, pass.scratch.data());
    const auto weight = matrix(pass.params.data() + group * out * depth(), out, depth());
    const T* columns = pass.scratch.data();
    T* y = pass.y.data() + r * out * plane();
    matrix(y, out, plane()).noalias() = weight * matrix(columns, depth(), plane());
    for (std::int64_t o = 0; options_.bias && o < out; ++o) {
      for (std::int64_t p = 0; p < plane(); ++p) y[o * plane() + p] += bias[group * out + o];
    }
  }
}

template <typename T>
void Conv2d<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                std::span<T> grads) const {
  if (pass.device != nullptr) return backward_params_there(pass, dy, grads);
  const std::int64_t out = out_channels();
  std::fill(grads.begin(), grads.end(), T(0));
  T* bias = grads.data() + output_.channels * depth();
  for (std::int64_t r = 0; r < pass.rows * options_.groups; ++r) {
    const std::int64_t group = r % options_.groups;
    im2col(pass.x.data() + r * in_channels() * in_.height * in_.width, pass.scratch.data());
    const T* columns = pass.scratch.data();
    const T* delta = dy.data() + r * out * plane();
    matrix(grads.data() + group * out * depth(), out, depth()).noalias() +=
        matrix(delta, out, plane()) * matrix(columns, depth(), plane()).transpose();
    for (std::int64_t o = 0; options_.bias && o < out; ++o) {
      bias[group * out + o] += fixed_sum(delta + o * plane(), plane());
    }
  }
}

template <typename T>
void Conv2d<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                               std::span<T> dx) const {
  if (pass.device != nullptr) return backward_input_there(pass, dy, dx);
  const std::int64_t out = out_channels();
  for (std::int64_t r = 0; r < pass.rows * options_.groups; ++r) {
    const std::int64_t group = r % options_.groups;
    const auto weight = matrix(pass.params.data() + group * out * depth(), out, depth());
    const T* delta = dy.data() + r * out * plane();
    matrix(pass.scratch.data(), depth(), plane()).noalias() =
        weight.transpose() * matrix(delta, out, plane());
    col2im(pass.scratch.data(), dx.data() + r * in_channels() * in_.height * in_.width);
  }
}

template <typename T>
ConvolutionShape Conv2d<T>::on_device() const {
  return {in_.channels,  in_.height,      in_.width,       output_.channels, output_.height,
          output_.width, options_.kernel, options_.stride, options_.padding, options_.groups};
}

template <typename T>
std::int64_t Conv2d<T>::samples_at_once(std::int64_t rows) const {
  constexpr std::int64_t kMostWindows = std::int64_t{1} << 26;  // elements of C: 256 MiB
  return std::clamp<std::int64_t>(kMostWindows / (plane() * depth()), 1, rows);
}

template <typename T>
std::int64_t Conv2d<T>::scratch_elems(std::int64_t rows, MemorySpace where) const {
  if (where != MemorySpace::kCuda) return depth() * plane();
  const std::int64_t pixels = samples_at_once(rows) * plane();
  return pixels * (depth() + out_channels()) + out_channels() * depth();
}

// Some samples and one group; spans of them, and of the scratch memory that is theirs.
template <typename T>
struct Conv2d<T>::Part {
  std::int64_t begin;
  std::int64_t rows;
  std::int64_t group;
  MatrixOperand<T> weight;
  std::span<T> columns;  // (rows plane, depth)
  std::span<T> pixels;   // (rows plane, out)
  std::span<T> partial;  // (out, depth)
};

template <typename T>
template <typename Visit>
void Conv2d<T>::for_each_part(const LayerPass<T>& pass, Visit visit) const {
  const std::int64_t most = samples_at_once(pass.rows);
  const std::int64_t weights = out_channels() * depth();
  for (std::int64_t begin = 0; begin < pass.rows; begin += most) {
    const std::int64_t rows = std::min(most, pass.rows - begin);
    const std::int64_t columns = rows * plane() * depth();
    const std::int64_t pixels = rows * plane() * out_channels();
    for (std::int64_t group = 0; group < options_.groups; ++group) {
      visit(Part{begin,
                 rows,
                 group,
                 {pass.params.data() + group * weights, out_channels(), depth()},
                 part_of(pass.scratch, 0, columns),
                 part_of(pass.scratch, columns, pixels),
                 part_of(pass.scratch, columns + pixels, weights)});
    }
  }
}

template <typename T>
void Conv2d<T>::forward_there(const LayerPass<T>& pass) const {
  const ConvolutionShape shape = on_device();
  const std::span<const T> bias =
      options_.bias ? part_of(pass.params, output_.channels * depth(), output_.channels)
                    : std::span<const T>();
  for_each_part(pass, [&](const Part& part) {
    MatrixOperand<T> weight = part.weight;
    weight.transposed = true;
    pass.device->windows(shape, part.rows, part.group,
                         part_of(pass.x, part.begin * in_.elems(), part.rows * in_.elems()),
                         part.columns);
    pass.device->product({part.columns.data(), part.rows * plane(), depth()}, weight,
                         part.pixels.data());
    pass.device->to_channels(
        shape, part.rows, part.group, part.pixels, bias,
        part_of(pass.y, part.begin * output_.elems(), part.rows * output_.elems()));
  });
}

template <typename T>
void Conv2d<T>::backward_params_there(const LayerPass<T>& pass, std::span<const T> dy,
                                      std::span<T> grads) const {
  const ConvolutionShape shape = on_device();
  const std::int64_t weights = out_channels() * depth();
  for_each_part(pass, [&](const Part& part) {
    pass.device->windows(shape, part.rows, part.group,
                         part_of(pass.x, part.begin * in_.elems(), part.rows * in_.elems()),
                         part.columns);
    pass.device->to_pixels(shape, part.rows, part.group,
                           part_of(dy, part.begin * output_.elems(), part.rows * output_.elems()),
                           part.pixels);
    const std::span<T> sum = part_of(grads, part.group * weights, weights);
    const std::span<T> to = part.begin == 0 ? sum : part.partial;
    pass.device->product({part.pixels.data(), part.rows * plane(), out_channels(), true},
                         {part.columns.data(), part.rows * plane(), depth()}, to.data());
    if (part.begin > 0) pass.device->add(to, sum);
  });
  if (!options_.bias) return;
  pass.device->sum_channels({pass.rows, output_.channels, plane()}, dy,
                            part_of(grads, output_.channels * depth(), output_.channels));
}

template <typename T>
void Conv2d<T>::backward_input_there(const LayerPass<T>& pass, std::span<const T> dy,
                                     std::span<T> dx) const {
  const ConvolutionShape shape = on_device();
  for_each_part(pass, [&](const Part& part) {
    pass.device->to_pixels(shape, part.rows, part.group,
                           part_of(dy, part.begin * output_.elems(), part.rows * output_.elems()),
                           part.pixels);
    pass.device->product({part.pixels.data(), part.rows * plane(), out_channels()}, part.weight,
                         part.columns.data());
    pass.device->windows_back(shape, part.rows, part.group, part.columns,
                              part_of(dx, part.begin * in_.elems(), part.rows * in_.elems()));
  });
}

template class Conv2d<float>;
template class Conv2d<double>;

}  // namespace gradwire
