#include "adapters/trainer/sharded/tensor_shards.h"

namespace gradwire {
namespace {

std::span<float> part(std::span<float> all, std::int64_t begin, std::int64_t elems) {
  return all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(elems));
}

}  // namespace

TensorShards::TensorShards(const ParameterTable& table, int rank, int ranks) {
  for (const TensorSlice& whole : whole_slices(table)) {
    const Range own = piece(whole.elems, ranks, rank);
    TensorSlice slice = whole;
    slice.begin = own.begin;
    slice.elems = own.size();
    slice.offset = elems_;
    elems_ += slice.elems;
    slices_.push_back(slice);
    tensors_.push_back({whole.offset, whole.offset + whole.elems});
  }
}

std::span<float> TensorShards::in_whole(std::span<float> whole, int index) const {
  const TensorSlice& slice = slices_[static_cast<std::size_t>(index)];
  return part(tensor(whole, index), slice.begin, slice.elems);
}

std::span<float> TensorShards::in_shard(std::span<float> shard, int index) const {
  const TensorSlice& slice = slices_[static_cast<std::size_t>(index)];
  return part(shard, slice.offset, slice.elems);
}

std::span<float> TensorShards::tensor(std::span<float> whole, int index) const {
  const Range& range = tensors_[static_cast<std::size_t>(index)];
  return part(whole, range.begin, range.size());
}

}  // namespace gradwire
