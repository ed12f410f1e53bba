// What the tests of the training loop train: digits, and two small models.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "gradwire/tensor.h"
#include "trainer/data/catalog.h"
#include "trainer/models.h"
#include "trainer/precision.h"

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

// Values in fp32, or widened from 16 bits.
inline std::vector<float> values_of(const ConstTensorView& tensor) {
  const auto elems = static_cast<std::size_t>(tensor.elems());
  std::vector<float> values(elems);
  if (tensor.dtype() == DType::kF32) {
    std::ranges::copy(elements<float>(tensor), values.begin());
  } else {
    load(precision_of(tensor.dtype()),
         {reinterpret_cast<const std::uint16_t*>(tensor.data()), elems}, values);
  }
  return values;
}
// All values times `by`, in the tensor's type.
inline void multiply(const TensorView& tensor, float by) {
  std::vector<float> values = values_of(tensor);
  for (float& value : values) value *= by;
  if (tensor.dtype() == DType::kF32) {
    std::ranges::copy(values, elements<float>(tensor).begin());
  } else {
    store(precision_of(tensor.dtype()), values,
          {reinterpret_cast<std::uint16_t*>(tensor.data()), values.size()});
  }
}
inline std::vector<float> flat(const std::vector<NamedTensor>& tensors) {
  std::vector<float> all;
  for (const NamedTensor& named : tensors) {
    const std::vector<float> values = values_of(named.tensor);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace gradwire
