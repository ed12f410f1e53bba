#include "trainer/model_costs.h"

namespace gradwire {

template <typename T>
std::vector<LayerAccount> model_costs(const Model<T>& model, std::int64_t rows) {
  std::vector<LayerAccount> accounts;
  std::int64_t input = model.input().elems();
  for (std::size_t i = 0; i < model.layers(); ++i) {
    const Layer<T>& layer = model.layer(i);
    LayerAccount account;
    account.name = model.layer_name(i);
    account.macs = layer.cost();
    account.parameters = parameter_elems(layer.parameters());
    account.input_elems = input;
    account.output_elems = layer.output().elems();
    account.saved_bytes =
        (rows * input + layer.saved_elems(rows)) * static_cast<std::int64_t>(sizeof(T));
    input = account.output_elems;
    accounts.push_back(std::move(account));
  }
  return accounts;
}

template std::vector<LayerAccount> model_costs(const Model<float>&, std::int64_t);
template std::vector<LayerAccount> model_costs(const Model<double>&, std::int64_t);

}  // namespace gradwire
