// Convolutions around their products: windows become rows of a matrix, its rows channels.
#include "trainer/cuda/cuda_layer_kernels.h"
#include "trainer/cuda/each.h"

namespace gradwire::cuda {
namespace {

// Where inputs and windows of one group meet.
struct GroupPlaces {
  ConvolutionShape s;
  std::int64_t group;

  // Of the first pixel of channel `c` of the group, in image `r`.
  GW_DEVICE std::int64_t input(std::int64_t r, std::int64_t c) const {
    return (r * s.channels + group * s.inputs() + c) * s.height * s.width;
  }
  GW_DEVICE std::int64_t output(std::int64_t r, std::int64_t o) const {
    return (r * s.out_channels + group * s.outputs() + o) * s.plane();
  }
};

struct WindowsOfImages {
  GroupPlaces places;
  const float* x;
  float* columns;
  GW_DEVICE void operator()(std::int64_t i) const {
    const ConvolutionShape& s = places.s;
    const std::int64_t d = i % s.depth();
    const std::int64_t pixel = i / s.depth();
    const std::int64_t p = pixel % s.plane();
    const std::int64_t line = p / s.out_width * s.stride + d / s.kernel % s.kernel - s.padding;
    const std::int64_t cell = p % s.out_width * s.stride + d % s.kernel - s.padding;
    const bool inside = line >= 0 && line < s.height && cell >= 0 && cell < s.width;
    const std::int64_t first = places.input(pixel / s.plane(), d / (s.kernel * s.kernel));
    columns[i] = inside ? x[first + line * s.width + cell] : 0;
  }
};

// Adds in the order of a window's elements, as the host does.
struct ImagesOfWindows {
  GroupPlaces places;
  const float* columns;
  float* dx;
  GW_DEVICE void operator()(std::int64_t i) const {
    const ConvolutionShape& s = places.s;
    const std::int64_t cell = i % s.width;
    const std::int64_t line = i / s.width % s.height;
    const std::int64_t c = i / (s.width * s.height) % s.inputs();
    const std::int64_t r = i / (s.width * s.height * s.inputs());
    float sum = 0;
    for (std::int64_t down = 0; down < s.kernel; ++down) {
      const std::int64_t h = line + s.padding - down;
      if (h < 0 || h % s.stride != 0 || h / s.stride >= s.out_height) continue;
      for (std::int64_t right = 0; right < s.kernel; ++right) {
        const std::int64_t w = cell + s.padding - right;
        if (w < 0 || w % s.stride != 0 || w / s.stride >= s.out_width) continue;
        const std::int64_t pixel = (r * s.out_height + h / s.stride) * s.out_width + w / s.stride;
        sum += columns[pixel * s.depth() + (c * s.kernel + down) * s.kernel + right];
      }
    }
    dx[places.input(r, c) + line * s.width + cell] = sum;
  }
};

struct ChannelsOfPixels {
  GroupPlaces places;
  const float* pixels;
  const float* bias;  // null: none
  float* y;
  GW_DEVICE void operator()(std::int64_t i) const {
    const ConvolutionShape& s = places.s;
    const std::int64_t p = i % s.plane();
    const std::int64_t o = i / s.plane() % s.outputs();
    const std::int64_t r = i / (s.plane() * s.outputs());
    float value = pixels[(r * s.plane() + p) * s.outputs() + o];
    if (bias != nullptr) value += bias[places.group * s.outputs() + o];
    y[places.output(r, o) + p] = value;
  }
};

struct PixelsOfChannels {
  GroupPlaces places;
  const float* dy;
  float* pixels;
  GW_DEVICE void operator()(std::int64_t i) const {
    const ConvolutionShape& s = places.s;
    const std::int64_t o = i % s.outputs();
    const std::int64_t p = i / s.outputs() % s.plane();
    pixels[i] = dy[places.output(i / (s.outputs() * s.plane()), o) + p];
  }
};

}  // namespace

void CudaLayerKernels::windows(const ConvolutionShape& shape, std::int64_t rows, std::int64_t group,
                               In x, Out columns) {
  const WindowsOfImages each{{shape, group}, x.data(), columns.data()};
  enqueue([&] { return for_each("windows", rows * shape.plane() * shape.depth(), each, stream_); });
}

void CudaLayerKernels::windows_back(const ConvolutionShape& shape, std::int64_t rows,
                                    std::int64_t group, In columns, Out dx) {
  const ImagesOfWindows each{{shape, group}, columns.data(), dx.data()};
  const std::int64_t count = rows * shape.inputs() * shape.height * shape.width;
  enqueue([&] { return for_each("windows_back", count, each, stream_); });
}

void CudaLayerKernels::to_channels(const ConvolutionShape& shape, std::int64_t rows,
                                   std::int64_t group, In pixels, In bias, Out y) {
  const ChannelsOfPixels each{{shape, group}, pixels.data(), bias.data(), y.data()};
  enqueue([&] {
    return for_each("to_channels", rows * shape.plane() * shape.outputs(), each, stream_);
  });
}

void CudaLayerKernels::to_pixels(const ConvolutionShape& shape, std::int64_t rows,
                                 std::int64_t group, In dy, Out pixels) {
  const PixelsOfChannels each{{shape, group}, dy.data(), pixels.data()};
  enqueue(
      [&] { return for_each("to_pixels", rows * shape.plane() * shape.outputs(), each, stream_); });
}

}  // namespace gradwire::cuda
