// Which part of every tensor a rank owns, and where it lies in memory without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/schedule.h"
#include "gradwire/tensor.h"
#include "trainer/optimizer.h"
#include "trainer/parameters.h"

namespace gradwire {

// Memory of a shard, and elements of it as a tensor where they lie.
inline std::span<float> shard_floats(Buffer& buffer) {
  return {reinterpret_cast<float*>(buffer.bytes().data()), buffer.bytes().size() / sizeof(float)};
}
inline TensorView shard_view(std::span<float> of_shard, Device device) {
  return {reinterpret_cast<std::byte*>(of_shard.data()),
          Shape::vector(static_cast<std::int64_t>(of_shard.size())), DType::kF32, device};
}

// Rank r owns piece(n, ranks, r) of every tensor of n elements, as the aggregator's sharded forms
// do: shards differ by one element a tensor at most, and small tensors leave some ranks without.
class TensorShards {
 public:
  // Of a table that lies without gaps.
  TensorShards(const ParameterTable& table, int rank, int ranks);

  // By tensor, behind one another: what an optimizer of this rank steps.
  const SliceTable& slices() const { return slices_; }
  std::int64_t elems() const { return elems_; }
  int tensors() const { return static_cast<int>(slices_.size()); }

  // The own part of tensor `index` in memory of the whole model, and in that of the shard.
  std::span<float> in_whole(std::span<float> whole, int index) const;
  std::span<float> in_shard(std::span<float> shard, int index) const;
  // Tensor `index` in memory of the whole model.
  std::span<float> tensor(std::span<float> whole, int index) const;

 private:
  SliceTable slices_;
  std::vector<Range> tensors_;  // in the whole
  std::int64_t elems_ = 0;
};

}  // namespace gradwire
