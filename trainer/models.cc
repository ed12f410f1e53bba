#include "trainer/models.h"

#include <algorithm>
#include <utility>

#include "base/nearest.h"
#include "base/text.h"
#include "trainer/models/families.h"
#include "trainer/models/image_model.h"

namespace gradwire {
namespace families {

Status check_size(const std::string& model, const char* what, std::int64_t seen, std::int64_t low,
                  std::int64_t high) {
  if (seen >= low && seen <= high) return {};
  return Status(Code::kInvalidArgument,
                format("model %s: %s %lld (expected %lld to %lld)", model.c_str(), what,
                       static_cast<long long>(seen), static_cast<long long>(low),
                       static_cast<long long>(high)));
}

Status check_image(const std::string& model, SampleShape image, std::int64_t smallest) {
  if (image.height >= smallest && image.width >= smallest) return {};
  return Status(Code::kInvalidArgument,
                format("model %s: images of %lldx%lld (expected at least %lldx%lld)", model.c_str(),
                       static_cast<long long>(image.height), static_cast<long long>(image.width),
                       static_cast<long long>(smallest), static_cast<long long>(smallest)));
}

namespace {

template <typename T>
Result<Model<T>> make_convex(const ModelOptions& options, Loss loss, SampleShape input,
                             std::int64_t classes) {
  GW_ASSIGN(ImageModel<T> layers, ImageModel<T>::begin(options, input));
  GW_TRY(layers.add_linear("fc", classes));
  Model<T> model = layers.finish();
  model.set_loss(loss);
  return model;
}

// Images have layouts of their own. By tiles alexnet is refused by the layers that it has: windows
// of its pools overlap, at any size.
Status check_layout(const ModelOptions& o) {
  if (!o.share.divides()) return {};
  const bool of_images = o.share.by_samples() || o.share.by_tiles();
  const std::vector<std::string> known =
      of_images ? std::vector<std::string>{"cnn", "resnet8", "resnet20", "alexnet"}
                : std::vector<std::string>{"mlp", "gpt"};
  if (std::ranges::find(known, o.name) != known.end()) return {};
  const char* layout = "";
  const char* wanted =
      "mlp or gpt, tp/hybrid for cnn, resnet8, resnet20 and alexnet, tp/spatial[RxC] for the first "
      "three of these";
  if (o.share.by_samples()) {
    layout = "/hybrid";
    wanted = "cnn, resnet8, resnet20 or alexnet";
  } else if (o.share.by_tiles()) {
    layout = "/spatial";
    wanted = "cnn, resnet8 or resnet20";
  }
  return {Code::kUnsupported, format("model %s among %d ranks of tp%s (expected %s, or one rank)",
                                     o.name.c_str(), o.share.ranks, layout, wanted)};
}

template <typename T>
Result<Model<T>> make(const ModelOptions& o, SampleShape input, std::int64_t classes) {
  GW_TRY(check_layout(o));
  if (o.name == "mlp") return make_mlp<T>(o, input, classes);
  if (o.name == "cnn") return make_cnn<T>(o, input, classes);
  if (o.name == "logistic") return make_convex<T>(o, Loss::kCrossEntropy, input, classes);
  if (o.name == "linear") return make_convex<T>(o, Loss::kSquares, input, classes);
  if (o.name == "resnet8") return make_resnet<T>(o, input, classes, 1);
  if (o.name == "resnet20") return make_resnet<T>(o, input, classes, 3);
  if (o.name == "alexnet") return make_alexnet<T>(o, input, classes);
  if (o.name == "gpt") return make_gpt<T>(o, input, classes);
  std::string names;
  for (const std::string& name : model_names()) names += (names.empty() ? "" : ", ") + name;
  return Status(Code::kInvalidArgument, "unknown model '" + o.name + "'" +
                                            did_you_mean(o.name, model_names()) + " (expected " +
                                            names + ")");
}

}  // namespace
}  // namespace families

std::vector<std::string> model_names() {
  return {"mlp", "cnn", "logistic", "linear", "resnet8", "resnet20", "alexnet", "gpt"};
}

template <typename T>
Result<Model<T>> make_model(const ModelOptions& options, SampleShape input, std::int64_t classes) {
  if (options.dropout && !(*options.dropout >= 0 && *options.dropout < 1)) {
    return Status(Code::kInvalidArgument, format("model %s: dropout %g (expected 0 <= dropout < 1)",
                                                 options.name.c_str(), *options.dropout));
  }
  GW_ASSIGN(Model<T> model, families::make<T>(options, input, classes));
  if (options.share.divides()) {
    ModelOptions undivided = options;
    undivided.share = {};
    GW_ASSIGN(const Model<T> whole, families::make<T>(undivided, input, classes));
    model.weigh_as(whole);
  }
  // A mistake of ours, not of who asks.
  if (options.share.divides()) {
    if (const Status placed = model.check_placement(); !placed.ok()) {
      return Status(Code::kInternal, std::string(placed.message()))
          .with_context("model " + options.name);
    }
  }
  // gpt's own way with its scheme knows how deep it is.
  if (options.init.empty() || (options.name == "gpt" && options.init == "gpt2")) return model;
  bool known = true;
  model.set_init([&](ParameterInfo& info) { known = known && set_init(info, options.init); });
  if (known) return model;
  return Status(
      Code::kInvalidArgument,
      format(
          "model %s: unknown initialisation '%s' (expected one of uniform, xavier, kaiming, gpt2)",
          options.name.c_str(), options.init.c_str()));
}

template Result<Model<float>> make_model<float>(const ModelOptions&, SampleShape, std::int64_t);
template Result<Model<double>> make_model<double>(const ModelOptions&, SampleShape, std::int64_t);

}  // namespace gradwire
