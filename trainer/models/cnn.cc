#include "trainer/models/families.h"
#include "trainer/models/image_model.h"

namespace gradwire::families {

template <typename T>
Result<Model<T>> make_cnn(const ModelOptions& options, SampleShape input, std::int64_t classes) {
  GW_TRY(check_image("cnn", input, 4));
  GW_ASSIGN(ImageModel<T> model, ImageModel<T>::begin(options, input));
  int number = 0;
  for (const std::int64_t channels : {16, 32}) {
    const std::string suffix = std::to_string(++number);
    GW_TRY(model.add_conv("conv" + suffix, channels, ConvOptions{3, 1, 1}));
    model.add_relu("relu" + suffix);
    GW_TRY(model.add_max_pool("pool" + suffix, 2, 2));
  }
  GW_TRY(model.add_linear("fc", classes));
  return model.finish();
}

template Result<Model<float>> make_cnn<float>(const ModelOptions&, SampleShape, std::int64_t);
template Result<Model<double>> make_cnn<double>(const ModelOptions&, SampleShape, std::int64_t);

}  // namespace gradwire::families
