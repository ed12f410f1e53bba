#include "trainer/accounts/model_products.h"

#include <algorithm>
#include <utility>

namespace gradwire {
namespace {

// Parameters of two dimensions and more; vectors are biases.
std::int64_t weights_of(const ParameterTable& table) {
  std::int64_t weights = 0;
  for (const ParameterInfo& info : table) weights += info.shape.rank > 1 ? info.shape.elems() : 0;
  return weights;
}

bool is_convolution(const ParameterTable& table) {
  return std::ranges::any_of(table, [](const ParameterInfo& info) { return info.shape.rank == 4; });
}

// `tied`: weights of another layer that it reads, 0 where it has its own.
void add_products(std::vector<ModelProduct>& products, const std::string& name,
                  const Layer<float>& layer, SampleShape input, std::int64_t tied) {
  const auto parts = layer.parts();
  for (const LayerPart<float>& part : parts) {
    const std::string inside = part.name.empty() ? name : name + "." + part.name;
    add_products(products, inside, *part.layer, part.input, tied);
  }
  if (!parts.empty() || layer.cost().forward_macs == 0) return;
  const ParameterTable table = layer.parameters();
  ModelProduct product{.name = name,
                       .size = {.weights = weights_of(table) + tied,
                                .inputs = input.elems(),
                                .outputs = layer.output().elems()},
                       .parameters = parameter_elems(table),
                       .forward_macs = layer.cost().forward_macs};
  if (is_convolution(table)) product.kind = ProductKind::kConvolution;
  if (product.size.weights == 0) product.kind = ProductKind::kAttention;
  products.push_back(std::move(product));
}

}  // namespace

std::string_view to_string(ProductKind kind) {
  switch (kind) {
    case ProductKind::kConvolution: return "convolutions";
    case ProductKind::kLinear: return "linear layers";
    case ProductKind::kAttention: return "attention";
  }
  return "?";
}

std::vector<ModelProduct> model_products(const Model<float>& model) {
  std::vector<ModelProduct> products;
  SampleShape input = model.input();
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    const int tied = model.tied_to(layer);
    const std::int64_t weights =
        tied < 0 ? 0 : model.parameters()[static_cast<std::size_t>(tied)].shape.elems();
    add_products(products, model.layer_name(layer), model.layer(layer), input, weights);
    input = model.layer(layer).output();
  }
  return products;
}

std::vector<KindOfWork> work_by_kind(const std::vector<ModelProduct>& products) {
  std::vector<KindOfWork> work;
  for (const ProductKind kind : kProductKinds) {
    KindOfWork sum{.kind = kind};
    for (const ModelProduct& product : products) {
      if (product.kind != kind) continue;
      sum.forward_macs += product.forward_macs;
      sum.parameters += product.parameters;
      sum.outputs += product.size.outputs;
    }
    if (sum.forward_macs > 0) work.push_back(sum);
  }
  return work;
}

ModelTraffic model_traffic(const Model<float>& model, std::int64_t samples) {
  ModelTraffic traffic;
  traffic.data_parallel = traffic.least = 2 * parameter_elems(model.parameters());
  for (const ModelProduct& product : model_products(model)) {
    const LayerSize& size = product.size;
    const LayerDivision division = least_traffic(size, samples);
    if (size.weights == 0 || division == LayerDivision::kDataParallel) continue;
    const bool tied = product.parameters == 0;
    const std::int64_t averaged = 2 * (tied ? size.weights : product.parameters);
    const std::int64_t looked_up = tied ? 2 * samples * size.inputs : 0;
    const std::int64_t divided = layer_traffic(division, size, samples).total() + looked_up;
    traffic.least += std::min<std::int64_t>(0, divided - averaged);
  }
  return traffic;
}

}  // namespace gradwire
