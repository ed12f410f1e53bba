// State of an optimizer: one float per element and kind, in memory that lies as the parameters do.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/optimizer.h"

namespace gradwire {

class FlatState {
 public:
  // One zeroed span per kind ("momentum"), of slice_elems(slices) elements.
  static Result<FlatState> allocate(const SliceTable& slices, std::vector<std::string> kinds);
  FlatState() = default;

  std::span<float> operator[](std::size_t kind);
  // "<tensor>.<kind>" for every kind and slice.
  std::vector<NamedTensor> named(const SliceTable& slices);

 private:
  std::vector<std::string> kinds_;
  std::vector<Buffer> memory_;
};

}  // namespace gradwire
