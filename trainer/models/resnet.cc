#include <memory>
#include <utility>

#include "trainer/layers/chain.h"
#include "trainer/layers/residual.h"
#include "trainer/models/families.h"
#include "trainer/models/image_model.h"

namespace gradwire::families {
namespace {

// Convolutions before a batch norm need no bias: the norm would take it away.
ConvOptions conv(std::int64_t kernel, std::int64_t stride) {
  return {kernel, stride, kernel / 2, 1, false};
}

template <typename T>
Result<std::unique_ptr<Layer<T>>> basic_block(const ImageModel<T>& model, const std::string& name,
                                              std::int64_t channels, std::int64_t stride) {
  using Layers = std::unique_ptr<Layer<T>>;
  const SampleShape in = model.output();
  const auto add_conv = [&](Chain<T>& chain, const std::string& part,
                            const ConvOptions& options) -> Status {
    auto layer = model.conv(name + "." + part, chain.output(), channels, options);
    if (!layer.has_value()) return layer.error();
    chain.add(part, std::move(layer).value());
    return {};
  };
  auto branch = std::make_unique<Chain<T>>(in);
  GW_TRY(add_conv(*branch, "conv1", conv(3, stride)));
  const SampleShape out = branch->output();
  branch->add("bn1", model.batch_norm(out));
  branch->add("relu1", model.relu(out));
  GW_TRY(add_conv(*branch, "conv2", conv(3, 1)));
  branch->add("bn2", model.batch_norm(out));
  if (in == out) return Layers(std::make_unique<Residual<T>>(in, std::move(branch)));
  auto shortcut = std::make_unique<Chain<T>>(in);
  GW_TRY(add_conv(*shortcut, "conv", conv(1, stride)));
  shortcut->add("bn", model.batch_norm(out));
  return Layers(std::make_unique<Residual<T>>(in, std::move(branch), std::move(shortcut)));
}

}  // namespace

template <typename T>
Result<Model<T>> make_resnet(const ModelOptions& options, SampleShape input, std::int64_t classes,
                             int blocks) {
  const std::int64_t width = options.width.value_or(16);
  GW_TRY(check_image(options.name, input, 4));
  GW_TRY(check_size(options.name, "width", width, 1, 4096));
  GW_ASSIGN(ImageModel<T> images, ImageModel<T>::begin(options, input));
  GW_TRY(images.add_conv("conv1", width, conv(3, 1)));
  images.add("bn1", images.batch_norm(images.output()));
  images.add_relu("relu1");
  int number = 0;
  for (int stage = 0; stage < 3; ++stage) {
    for (int block = 0; block < blocks; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      const std::string name = "block" + std::to_string(++number);
      GW_ASSIGN(auto layer, basic_block<T>(images, name, width << stage, stride));
      images.add(name, std::move(layer));
      images.add_relu(name + ".relu");
    }
  }
  images.add_mean("pool");
  GW_TRY(images.add_linear("fc", classes));
  Model<T> model = images.finish();
  model.set_init([](ParameterInfo& info) {
    if (info.shape.rank == 4) set_init(info, "kaiming");
  });
  return model;
}

template Result<Model<float>> make_resnet<float>(const ModelOptions&, SampleShape, std::int64_t,
                                                 int);
template Result<Model<double>> make_resnet<double>(const ModelOptions&, SampleShape, std::int64_t,
                                                   int);

}  // namespace gradwire::families
