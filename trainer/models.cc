#include "trainer/models.h"

#include <memory>
#include <utility>

#include "base/text.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/flatten.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/relu.h"

namespace gradwire {
namespace {

template <typename T>
Result<Model<T>> make_mlp(const std::vector<std::int64_t>& hidden, SampleShape input,
                          std::int64_t classes) {
  constexpr std::int64_t kWidest = 1 << 20;
  Model<T> model(input);
  if (input.height > 1 || input.width > 1) {
    model.add("flatten", std::make_unique<Flatten<T>>(input));
  }
  std::int64_t width = input.elems();
  int number = 0;
  for (const std::int64_t next : hidden) {
    if (next < 1 || next > kWidest) {
      return Status(Code::kInvalidArgument,
                    format("model mlp: hidden width %lld; 1 to %lld wanted",
                           static_cast<long long>(next), static_cast<long long>(kWidest)));
    }
    ++number;
    model.add("fc" + std::to_string(number), std::make_unique<Linear<T>>(width, next));
    model.add("relu" + std::to_string(number), std::make_unique<Relu<T>>(SampleShape{next, 1, 1}));
    width = next;
  }
  model.add("fc" + std::to_string(number + 1), std::make_unique<Linear<T>>(width, classes));
  return model;
}

template <typename T>
Result<Model<T>> make_cnn(SampleShape input, std::int64_t classes) {
  if (input.height < 4 || input.width < 4) {
    return Status(
        Code::kInvalidArgument,
        format("model cnn: images of %lldx%lld; at least 4x4 wanted",
               static_cast<long long>(input.height), static_cast<long long>(input.width)));
  }
  constexpr std::int64_t kKernel = 3;
  Model<T> model(input);
  int number = 0;
  for (const std::int64_t channels : {16, 32}) {
    const std::string suffix = std::to_string(++number);
    model.add("conv" + suffix, std::make_unique<Conv2d<T>>(model.output(), channels, kKernel));
    model.add("relu" + suffix, std::make_unique<Relu<T>>(model.output()));
    model.add("pool" + suffix, std::make_unique<MaxPool2d<T>>(model.output()));
  }
  model.add("flatten", std::make_unique<Flatten<T>>(model.output()));
  model.add("fc", std::make_unique<Linear<T>>(model.output().elems(), classes));
  return model;
}

}  // namespace

template <typename T>
Result<Model<T>> make_model(const ModelOptions& options, SampleShape input, std::int64_t classes) {
  if (options.name == "mlp") return make_mlp<T>(options.hidden, input, classes);
  if (options.name == "cnn") return make_cnn<T>(input, classes);
  return Status(Code::kInvalidArgument,
                format("unknown model '%s'; mlp or cnn wanted", options.name.c_str()));
}

template Result<Model<float>> make_model<float>(const ModelOptions&, SampleShape, std::int64_t);
template Result<Model<double>> make_model<double>(const ModelOptions&, SampleShape, std::int64_t);

}  // namespace gradwire
