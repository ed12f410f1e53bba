#include <memory>
#include <utility>

#include "trainer/layers/avg_pool2d.h"
#include "trainer/layers/batch_norm2d.h"
#include "trainer/layers/chain.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/relu.h"
#include "trainer/layers/residual.h"
#include "trainer/models/families.h"

namespace gradwire::families {
namespace {

// Convolutions before a batch norm need no bias: the norm would take it away.
ConvOptions conv(std::int64_t kernel, std::int64_t stride) {
  return {kernel, stride, kernel / 2, 1, false};
}

template <typename T>
std::unique_ptr<Layer<T>> basic_block(SampleShape in, std::int64_t channels, std::int64_t stride) {
  auto branch = std::make_unique<Chain<T>>(in);
  branch->add("conv1", std::make_unique<Conv2d<T>>(in, channels, conv(3, stride)));
  const SampleShape out = branch->output();
  branch->add("bn1", std::make_unique<BatchNorm2d<T>>(out));
  branch->add("relu1", std::make_unique<Relu<T>>(out));
  branch->add("conv2", std::make_unique<Conv2d<T>>(out, channels, conv(3, 1)));
  branch->add("bn2", std::make_unique<BatchNorm2d<T>>(out));
  if (in == out) return std::make_unique<Residual<T>>(in, std::move(branch));
  auto shortcut = std::make_unique<Chain<T>>(in);
  shortcut->add("conv", std::make_unique<Conv2d<T>>(in, channels, conv(1, stride)));
  shortcut->add("bn", std::make_unique<BatchNorm2d<T>>(out));
  return std::make_unique<Residual<T>>(in, std::move(branch), std::move(shortcut));
}

}  // namespace

template <typename T>
Result<Model<T>> make_resnet(const ModelOptions& options, SampleShape input, std::int64_t classes,
                             int blocks) {
  const std::int64_t width = options.width.value_or(16);
  GW_TRY(check_image(options.name, input, 4));
  GW_TRY(check_size(options.name, "width", width, 1, 4096));
  Model<T> model(input);
  model.add("conv1", std::make_unique<Conv2d<T>>(input, width, conv(3, 1)));
  model.add("bn1", std::make_unique<BatchNorm2d<T>>(model.output()));
  model.add("relu1", std::make_unique<Relu<T>>(model.output()));
  int number = 0;
  for (int stage = 0; stage < 3; ++stage) {
    for (int block = 0; block < blocks; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      const std::string suffix = std::to_string(++number);
      model.add("block" + suffix, basic_block<T>(model.output(), width << stage, stride));
      model.add("block" + suffix + ".relu", std::make_unique<Relu<T>>(model.output()));
    }
  }
  model.add("pool", std::make_unique<AvgPool2d<T>>(AvgPool2d<T>::global(model.output())));
  add_classifier(model, "fc", classes);
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
