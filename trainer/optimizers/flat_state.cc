#include "trainer/optimizers/flat_state.h"

#include <utility>

namespace gradwire {

Result<FlatState> FlatState::allocate(const SliceTable& slices, std::vector<std::string> kinds,
                                      const MemoryArena& arena) {
  FlatState state;
  state.kinds_ = std::move(kinds);
  const auto bytes = static_cast<std::size_t>(slice_elems(slices)) * sizeof(float);
  for (std::size_t kind = 0; kind < state.kinds_.size(); ++kind) {
    GW_ASSIGN(Buffer own, arena.allocate(MemoryClass::kMoments, bytes));
    state.memory_.push_back(std::move(own));
  }
  return state;
}

std::span<float> FlatState::operator[](std::size_t kind) {
  const ByteSpan bytes = memory_[kind].bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::vector<NamedTensor> FlatState::named(const SliceTable& slices) {
  std::vector<NamedTensor> tensors;
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    auto* data = reinterpret_cast<std::byte*>((*this)[kind].data());
    for (const TensorSlice& slice : slices) {
      tensors.push_back(
          {slice.name + "." + kinds_[kind],
           TensorView(data + static_cast<std::size_t>(slice.offset) * sizeof(float),
                      Shape::vector(slice.elems), DType::kF32, memory_[kind].device())});
    }
  }
  return tensors;
}

}  // namespace gradwire
