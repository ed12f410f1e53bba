#include <memory>

#include "trainer/layers/conv2d.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/relu.h"
#include "trainer/models/families.h"

namespace gradwire::families {

template <typename T>
Result<Model<T>> make_cnn(SampleShape input, std::int64_t classes) {
  GW_TRY(check_image("cnn", input, 4));
  constexpr std::int64_t kKernel = 3;
  Model<T> model(input);
  int number = 0;
  for (const std::int64_t channels : {16, 32}) {
    const std::string suffix = std::to_string(++number);
    model.add("conv" + suffix, std::make_unique<Conv2d<T>>(model.output(), channels, kKernel));
    model.add("relu" + suffix, std::make_unique<Relu<T>>(model.output()));
    model.add("pool" + suffix, std::make_unique<MaxPool2d<T>>(model.output()));
  }
  add_classifier(model, "fc", classes);
  return model;
}

template Result<Model<float>> make_cnn<float>(SampleShape, std::int64_t);
template Result<Model<double>> make_cnn<double>(SampleShape, std::int64_t);

}  // namespace gradwire::families
