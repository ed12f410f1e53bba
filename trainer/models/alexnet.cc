#include <memory>

#include "trainer/layers/conv2d.h"
#include "trainer/layers/dropout.h"
#include "trainer/layers/flatten.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/relu.h"
#include "trainer/models/families.h"

namespace gradwire::families {
namespace {

template <typename T>
class Builder {
 public:
  explicit Builder(SampleShape input) : model_(input) {}

  void conv(std::int64_t channels, ConvOptions options) {
    const std::string suffix = std::to_string(++convs_);
    model_.add("conv" + suffix, std::make_unique<Conv2d<T>>(model_.output(), channels, options));
    model_.add("conv" + suffix + ".relu", std::make_unique<Relu<T>>(model_.output()));
  }
  // Left out where there is nothing left to pool.
  void pool() {
    const SampleShape now = model_.output();
    if (now.height < 3 || now.width < 3) return;
    model_.add("conv" + std::to_string(convs_) + ".pool",
               std::make_unique<MaxPool2d<T>>(now, 3, 2));
  }
  void hidden(std::int64_t width, double dropout) {
    const std::string name = "fc" + std::to_string(++linears_);
    if (dropout > 0) {
      model_.add(name + ".dropout",
                 std::make_unique<Dropout<T>>(model_.output(), dropout, name + ".dropout"));
    }
    model_.add(name, std::make_unique<Linear<T>>(model_.output().elems(), width));
    model_.add(name + ".relu", std::make_unique<Relu<T>>(model_.output()));
  }
  Model<T> finish(std::int64_t classes) {
    add_classifier(model_, "fc" + std::to_string(linears_ + 1), classes);
    return std::move(model_);
  }
  void flatten() { model_.add("flatten", std::make_unique<Flatten<T>>(model_.output())); }

 private:
  Model<T> model_;
  int convs_ = 0;
  int linears_ = 0;
};

}  // namespace

template <typename T>
Result<Model<T>> make_alexnet(const ModelOptions& options, SampleShape input,
                              std::int64_t classes) {
  constexpr std::int64_t kLargeImage = 64;
  const std::int64_t width = options.width.value_or(4096);
  const double dropout = options.dropout.value_or(0.5);
  GW_TRY(check_image(options.name, input, 16));
  GW_TRY(check_size(options.name, "width", width, 1, 1 << 16));
  const bool large = input.height >= kLargeImage && input.width >= kLargeImage;
  Builder<T> builder(input);
  builder.conv(96, large ? ConvOptions{11, 4, 2} : ConvOptions{5, 2, 2});
  builder.pool();
  builder.conv(256, {5, 1, 2, 2});
  builder.pool();
  builder.conv(384, {3, 1, 1, 1});
  builder.conv(384, {3, 1, 1, 2});
  builder.conv(256, {3, 1, 1, 2});
  builder.pool();
  builder.flatten();
  builder.hidden(width, dropout);
  builder.hidden(width, dropout);
  return builder.finish(classes);
}

template Result<Model<float>> make_alexnet<float>(const ModelOptions&, SampleShape, std::int64_t);
template Result<Model<double>> make_alexnet<double>(const ModelOptions&, SampleShape, std::int64_t);

}  // namespace gradwire::families
