// Models for images, with convolutions or without, layer by layer: whole, or as one of the ranks
// has them that share it (TensorShare::Layout::kSamples, kTiles).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "trainer/layers/conv2d.h"
#include "trainer/models.h"

namespace gradwire::families {

// Convolutions and what stands between them first, then linear layers. Errors name the model and
// the layer that ranks cannot divide.
//
//             by samples                                  by tiles
//   data      OwnSamples "samples"                        OwnTile "tiles"
//   images    as whole, batch norm over ranks             TileConv2d, batch norm over ranks
//   linear    SampleInput of columns, rows, InputSum      TileGather "gather" or TileMean, then the
//             of columns, rows, ...                       same on all ranks
template <typename T>
class ImageModel {
 public:
  using LayerPointer = std::unique_ptr<Layer<T>>;

  // With the layer that takes a rank's part of the data.
  static Result<ImageModel> begin(const ModelOptions& options, SampleShape input);

  // Of what is here: a tile of an image, where ranks divide it.
  SampleShape output() const { return model_.output(); }
  // Of all tiles together.
  SampleShape image() const;
  void add(const std::string& name, LayerPointer layer) { model_.add(name, std::move(layer)); }

  // Layers that read images of shape `in`, for add() or for a block; `name`: the layer's, in
  // errors.
  Result<LayerPointer> conv(const std::string& name, SampleShape in, std::int64_t channels,
                            const ConvOptions& options) const;
  LayerPointer batch_norm(SampleShape shape) const;
  LayerPointer relu(SampleShape shape) const;
  Result<LayerPointer> max_pool(const std::string& name, SampleShape in, std::int64_t window,
                                std::int64_t stride) const;
  // Of each channel of the whole image.
  LayerPointer mean(SampleShape in) const;

  // Conv, pool: the same, appended.
  Status add_conv(const std::string& name, std::int64_t channels, const ConvOptions& options);
  Status add_max_pool(const std::string& name, std::int64_t window, std::int64_t stride);
  void add_mean(const std::string& name);
  // Behind the images: their features as a vector.
  void flatten();
  // Of the features before the next linear layer.
  void add_dropout(const std::string& name, double p);
  Status add_linear(const std::string& name, std::int64_t outputs);
  void add_relu(const std::string& name) { add(name, relu(output())); }

  // The last linear layer's outputs are the classes.
  Model<T> finish();

 private:
  ImageModel(const ModelOptions& options, SampleShape input)
      : name_(options.name), share_(options.share), model_(input) {}
  Status refuse(const std::string& layer, const std::string& why) const;
  bool is_tiled() const { return share_.by_tiles() && !has_features_; }
  // What follows is no part of an image.
  void end_images();
  void end_images_before_linear();

  std::string name_;
  TensorShare share_;
  Model<T> model_;
  bool has_features_ = false;         // images are behind it
  std::size_t image_parameters_ = 0;  // of layers before that
  int linears_ = 0;
  std::int64_t outputs_ = 0;  // of the last linear layer, on all ranks
};

}  // namespace gradwire::families
