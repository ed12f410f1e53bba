#include "trainer/models/image_model.h"

#include <utility>

#include "base/text.h"
#include "trainer/layers/avg_pool2d.h"
#include "trainer/layers/batch_norm2d.h"
#include "trainer/layers/dropout.h"
#include "trainer/layers/flatten.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/parallel/column_linear.h"
#include "trainer/layers/parallel/input_sum.h"
#include "trainer/layers/parallel/own_samples.h"
#include "trainer/layers/parallel/own_tile.h"
#include "trainer/layers/parallel/row_linear.h"
#include "trainer/layers/parallel/sample_input.h"
#include "trainer/layers/parallel/tile_conv2d.h"
#include "trainer/layers/parallel/tile_gather.h"
#include "trainer/layers/parallel/tile_mean.h"
#include "trainer/layers/relu.h"

namespace gradwire::families {
namespace {

std::string size_of_image(SampleShape image) {
  return format("%lldx%lld", static_cast<long long>(image.height),
                static_cast<long long>(image.width));
}

}  // namespace

template <typename T>
Status ImageModel<T>::refuse(const std::string& layer, const std::string& why) const {
  const std::string layout = share_.by_tiles()
                                 ? format("spatial[%dx%d]", share_.tile_rows, share_.tile_columns)
                                 : "hybrid";
  return {Code::kInvalidArgument, "model " + name_ + ", layer '" + layer + "', among " +
                                      std::to_string(share_.ranks) + " ranks of tp/" + layout +
                                      ": " + why};
}

template <typename T>
Result<ImageModel<T>> ImageModel<T>::begin(const ModelOptions& options, SampleShape input) {
  ImageModel made(options, input);
  const TensorShare& share = made.share_;
  made.model_.share_with(share.ranks);
  if (share.by_samples() || share.by_tiles()) made.model_.divide_data();
  if (share.by_samples()) {
    made.add("samples", std::make_unique<OwnSamples<T>>(input, share));
  } else if (share.by_tiles()) {
    if (!divides_evenly(input.height, share.tile_rows) ||
        !divides_evenly(input.width, share.tile_columns)) {
      return made.refuse("tiles", "images of " + size_of_image(input) +
                                      " (expected a height and a width that the grid divides)");
    }
    made.add("tiles", std::make_unique<OwnTile<T>>(input, share));
  }
  return made;
}

template <typename T>
auto ImageModel<T>::conv(const std::string& name, SampleShape in, std::int64_t channels,
                         const ConvOptions& options) const -> Result<LayerPointer> {
  if (!is_tiled()) return LayerPointer(std::make_unique<Conv2d<T>>(in, channels, options));
  if (const Status fits = TileConv2d<T>::check(in, options, share_); !fits.ok()) {
    return refuse(name, std::string(fits.message()));
  }
  return LayerPointer(std::make_unique<TileConv2d<T>>(in, channels, options, share_));
}

template <typename T>
auto ImageModel<T>::batch_norm(SampleShape shape) const -> LayerPointer {
  return std::make_unique<BatchNorm2d<T>>(shape, share_.ranks);
}

template <typename T>
auto ImageModel<T>::relu(SampleShape shape) const -> LayerPointer {
  return std::make_unique<Relu<T>>(shape);
}

template <typename T>
auto ImageModel<T>::max_pool(const std::string& name, SampleShape in, std::int64_t window,
                             std::int64_t stride) const -> Result<LayerPointer> {
  const TiledAxes tiled{share_.tile_rows > 1, share_.tile_columns > 1};
  auto made = std::make_unique<MaxPool2d<T>>(in, window, stride, tiled);
  if (!is_tiled() || made->fits_tiles()) return LayerPointer(std::move(made));
  return refuse(name, format("windows of %lld with stride %lld on tiles of %s (expected windows "
                             "that do not overlap, and tiles of a multiple of the stride, along an "
                             "axis that is divided)",
                             static_cast<long long>(window), static_cast<long long>(stride),
                             size_of_image(in).c_str()));
}

template <typename T>
auto ImageModel<T>::mean(SampleShape in) const -> LayerPointer {
  if (is_tiled()) return std::make_unique<TileMean<T>>(in, share_);
  return std::make_unique<AvgPool2d<T>>(AvgPool2d<T>::global(in));
}

template <typename T>
Status ImageModel<T>::add_conv(const std::string& name, std::int64_t channels,
                               const ConvOptions& options) {
  GW_ASSIGN(LayerPointer layer, conv(name, output(), channels, options));
  add(name, std::move(layer));
  return {};
}

template <typename T>
Status ImageModel<T>::add_max_pool(const std::string& name, std::int64_t window,
                                   std::int64_t stride) {
  GW_ASSIGN(LayerPointer layer, max_pool(name, output(), window, stride));
  add(name, std::move(layer));
  return {};
}

template <typename T>
SampleShape ImageModel<T>::image() const {
  return is_tiled() ? TileGrid::of(share_).image_of(output()) : output();
}

template <typename T>
void ImageModel<T>::end_images() {
  has_features_ = true;
  image_parameters_ = model_.parameters().size();
}

template <typename T>
void ImageModel<T>::add_mean(const std::string& name) {
  add(name, mean(output()));
  end_images();
}

template <typename T>
void ImageModel<T>::flatten() {
  if (is_tiled()) add("gather", std::make_unique<TileGather<T>>(output(), share_));
  end_images();
  add("flatten", std::make_unique<Flatten<T>>(output()));
}

template <typename T>
void ImageModel<T>::end_images_before_linear() {
  if (has_features_) return;
  if (image().height > 1 || image().width > 1) return flatten();
  end_images();
}

template <typename T>
void ImageModel<T>::add_dropout(const std::string& name, double p) {
  // Behind a layer of columns each rank has some features.
  if (share_.by_samples() && linears_ % 2 == 1) {
    add(name, std::make_unique<Dropout<T>>(share_.part(outputs_), outputs_, p, name));
  } else {
    add(name, std::make_unique<Dropout<T>>(output(), p, name));
  }
}

// By samples the first one is divided by columns, which gathers the samples, the next by rows, and
// so on, as an mlp's are.
template <typename T>
Status ImageModel<T>::add_linear(const std::string& name, std::int64_t outputs) {
  end_images_before_linear();
  const std::int64_t inputs = linears_ == 0 ? output().elems() : outputs_;
  ++linears_;
  outputs_ = outputs;
  if (!share_.by_samples()) {
    add(name, std::make_unique<Linear<T>>(inputs, outputs));
    return {};
  }
  if (linears_ % 2 == 0) {
    add(name, std::make_unique<RowLinear<T>>(RowShare{inputs, share_.part(inputs)}, outputs));
    return {};
  }
  if (outputs < share_.ranks) {
    return refuse(name, format("%lld outputs (expected at least as many as ranks)",
                               static_cast<long long>(outputs)));
  }
  auto columns =
      std::make_unique<ColumnLinear<T>>(inputs, ColumnShare{outputs, share_.part(outputs)});
  if (linears_ == 1) {
    add(name, std::make_unique<SampleInput<T>>(std::move(columns), inputs, share_));
  } else {
    add(name, std::make_unique<InputSum<T>>(std::move(columns)));
  }
  return {};
}

template <typename T>
Model<T> ImageModel<T>::finish() {
  if (share_.by_samples() && linears_ % 2 == 1) {
    model_.divide_classes({share_.part(outputs_), outputs_});
  }
  std::size_t index = 0;
  model_.set_init(
      [&](ParameterInfo& info) { info.summed = share_.divides() && index++ < image_parameters_; });
  return std::move(model_);
}

template class ImageModel<float>;
template class ImageModel<double>;

}  // namespace gradwire::families
