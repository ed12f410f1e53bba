#include <string>

#include "trainer/models/families.h"
#include "trainer/models/image_model.h"

namespace gradwire::families {
namespace {

template <typename T>
class Builder {
 public:
  explicit Builder(ImageModel<T>& model) : model_(model) {}

  Status conv(std::int64_t channels, const ConvOptions& options) {
    const std::string name = "conv" + std::to_string(++convs_);
    GW_TRY(model_.add_conv(name, channels, options));
    model_.add_relu(name + ".relu");
    return {};
  }
  // Left out where there is nothing left to pool.
  Status pool() {
    const SampleShape now = model_.image();
    if (now.height < 3 || now.width < 3) return {};
    return model_.add_max_pool("conv" + std::to_string(convs_) + ".pool", 3, 2);
  }
  Status hidden(std::int64_t width, double dropout) {
    const std::string name = "fc" + std::to_string(++linears_);
    if (dropout > 0) model_.add_dropout(name + ".dropout", dropout);
    GW_TRY(model_.add_linear(name, width));
    model_.add_relu(name + ".relu");
    return {};
  }

 private:
  ImageModel<T>& model_;
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
  GW_ASSIGN(ImageModel<T> model, ImageModel<T>::begin(options, input));
  Builder<T> builder(model);
  GW_TRY(builder.conv(96, large ? ConvOptions{11, 4, 2} : ConvOptions{5, 2, 2}));
  GW_TRY(builder.pool());
  GW_TRY(builder.conv(256, {5, 1, 2, 2}));
  GW_TRY(builder.pool());
  GW_TRY(builder.conv(384, {3, 1, 1, 1}));
  GW_TRY(builder.conv(384, {3, 1, 1, 2}));
  GW_TRY(builder.conv(256, {3, 1, 1, 2}));
  GW_TRY(builder.pool());
  model.flatten();
  GW_TRY(builder.hidden(width, dropout));
  GW_TRY(builder.hidden(width, dropout));
  GW_TRY(model.add_linear("fc3", classes));
  return model.finish();
}

template Result<Model<float>> make_alexnet<float>(const ModelOptions&, SampleShape, std::int64_t);
template Result<Model<double>> make_alexnet<double>(const ModelOptions&, SampleShape, std::int64_t);

}  // namespace gradwire::families
