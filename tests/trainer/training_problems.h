// What the tests of the training loop train: digits, and two small models.
#pragma once

#include <utility>
#include <vector>

#include "base/elements.h"
#include "gradwire/tensor.h"
#include "trainer/data/catalog.h"
#include "trainer/models.h"

namespace gradwire {

inline const DataSet& digits() {
  static const DataSet kSet = std::move(load_data_set("digits", {})).value();
  return kSet;
}
inline const Model<float>& mlp() {
  static const auto kModel =
      std::move(make_model<float>({"mlp", {32, 16}}, digits().shape(), 10)).value();
  return kModel;
}
inline const Model<float>& cnn() {
  static const auto kModel =
      std::move(make_model<float>({"cnn", {}}, digits().shape(), 10)).value();
  return kModel;
}

inline std::vector<float> flat(const std::vector<NamedTensor>& tensors) {
  std::vector<float> all;
  for (const NamedTensor& named : tensors) {
    const auto values = elements<float>(ConstTensorView(named.tensor));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace gradwire
