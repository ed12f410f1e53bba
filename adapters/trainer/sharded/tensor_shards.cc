#include "adapters/trainer/sharded/tensor_shards.h"

namespace gradwire {

TensorShards::TensorShards(const ParameterTable& table, int rank, int ranks) {
  for (const TensorSlice& whole : whole_slices(table)) {
    const Range own = piece(whole.elems, ranks, rank);
    TensorSlice slice = whole;
    slice.begin = own.begin;
    slice.elems = own.size();
    slice.offset = elems_;
    elems_ += slice.elems;
    slices_.push_back(slice);
  }
}

TensorView TensorShards::in_tensor(const TensorView& tensor, int index) const {
  const TensorSlice& slice = slices_[static_cast<std::size_t>(index)];
  return tensor.slice(slice.begin, slice.elems);
}

TensorView TensorShards::in_shard(const Buffer& shard, DType dtype, int index) const {
  return shard.tensor(Shape::vector(elems_), dtype)
      .slice(slices_[static_cast<std::size_t>(index)].offset,
             slices_[static_cast<std::size_t>(index)].elems);
}

}  // namespace gradwire
