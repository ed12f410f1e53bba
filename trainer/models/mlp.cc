#include <memory>
#include <string>

#include "base/text.h"
#include "trainer/layers/flatten.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/parallel/column_linear.h"
#include "trainer/layers/parallel/input_sum.h"
#include "trainer/layers/parallel/row_linear.h"
#include "trainer/layers/relu.h"
#include "trainer/models/families.h"

namespace gradwire::families {
namespace {

// Linear layer `number`, from 1: odd ones are divided by outputs, even ones by inputs, which is how
// the layer before left them.
template <typename T>
std::unique_ptr<Layer<T>> mlp_linear(const TensorShare& share, int number, std::int64_t in,
                                     std::int64_t out) {
  if (!share.divides()) return std::make_unique<Linear<T>>(in, out);
  if (number % 2 == 0) return std::make_unique<RowLinear<T>>(RowShare{in, share.part(in)}, out);
  return std::make_unique<InputSum<T>>(
      std::make_unique<ColumnLinear<T>>(in, ColumnShare{out, share.part(out)}));
}

Status check_mlp_share(const TensorShare& share, std::int64_t outputs) {
  if (outputs >= share.ranks) return {};
  return {Code::kInvalidArgument,
          format("model mlp: a layer of %lld outputs among %d ranks of tp (expected at least as "
                 "many)",
                 static_cast<long long>(outputs), share.ranks)};
}

}  // namespace

template <typename T>
Result<Model<T>> make_mlp(const ModelOptions& options, SampleShape input, std::int64_t classes) {
  constexpr std::int64_t kWidest = 1 << 20;
  Model<T> model(input);
  model.share_with(options.share.ranks);
  if (input.height > 1 || input.width > 1) {
    model.add("flatten", std::make_unique<Flatten<T>>(input));
  }
  std::int64_t width = input.elems();
  int number = 0;
  for (const std::int64_t next : options.hidden) {
    GW_TRY(check_size(options.name, "hidden width", next, 1, kWidest));
    ++number;
    if (number % 2 == 1) GW_TRY(check_mlp_share(options.share, next));
    model.add("fc" + std::to_string(number), mlp_linear<T>(options.share, number, width, next));
    model.add("relu" + std::to_string(number), std::make_unique<Relu<T>>(model.output()));
    width = next;
  }
  ++number;
  if (number % 2 == 1) GW_TRY(check_mlp_share(options.share, classes));
  model.add("fc" + std::to_string(number), mlp_linear<T>(options.share, number, width, classes));
  if (options.share.divides() && number % 2 == 1) {
    model.divide_classes({options.share.part(classes), classes});
  }
  return model;
}

template Result<Model<float>> make_mlp<float>(const ModelOptions&, SampleShape, std::int64_t);
template Result<Model<double>> make_mlp<double>(const ModelOptions&, SampleShape, std::int64_t);

}  // namespace gradwire::families
