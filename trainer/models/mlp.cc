#include <memory>

#include "trainer/layers/flatten.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/relu.h"
#include "trainer/models/families.h"

namespace gradwire::families {

template <typename T>
Result<Model<T>> make_mlp(const ModelOptions& options, SampleShape input, std::int64_t classes) {
  constexpr std::int64_t kWidest = 1 << 20;
  Model<T> model(input);
  if (input.height > 1 || input.width > 1) {
    model.add("flatten", std::make_unique<Flatten<T>>(input));
  }
  std::int64_t width = input.elems();
  int number = 0;
  for (const std::int64_t next : options.hidden) {
    GW_TRY(check_size(options.name, "hidden width", next, 1, kWidest));
    ++number;
    model.add("fc" + std::to_string(number), std::make_unique<Linear<T>>(width, next));
    model.add("relu" + std::to_string(number), std::make_unique<Relu<T>>(SampleShape{next, 1, 1}));
    width = next;
  }
  model.add("fc" + std::to_string(number + 1), std::make_unique<Linear<T>>(width, classes));
  return model;
}

template Result<Model<float>> make_mlp<float>(const ModelOptions&, SampleShape, std::int64_t);
template Result<Model<double>> make_mlp<double>(const ModelOptions&, SampleShape, std::int64_t);

}  // namespace gradwire::families
