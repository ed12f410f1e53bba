// Which part of every tensor a rank owns, and where it lies in memory without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/schedule.h"
#include "gradwire/tensor.h"
#include "trainer/optimizers/optimizer.h"
#include "trainer/parameters.h"

namespace gradwire {

// Elements of f32, or of 16 bits, that a tensor has.
inline std::span<float> floats_of(const TensorView& tensor) {
  return {reinterpret_cast<float*>(tensor.data()), static_cast<std::size_t>(tensor.elems())};
}
inline std::span<std::uint16_t> halves_of(const TensorView& tensor) {
  return {reinterpret_cast<std::uint16_t*>(tensor.data()),
          static_cast<std::size_t>(tensor.elems())};
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

  // The own part of tensor `index`, of the tensor and of a shard's memory, as vectors.
  TensorView in_tensor(const TensorView& tensor, int index) const;
  TensorView in_shard(const Buffer& shard, DType dtype, int index) const;

 private:
  SliceTable slices_;
  std::int64_t elems_ = 0;
};

}  // namespace gradwire
