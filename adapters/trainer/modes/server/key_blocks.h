// A parameter server's keys: blocks of whole rows of one tensor, each with a server of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/parameters.h"

namespace gradwire {

struct KeyBlock {
  std::string tensor;       // "fc1.weight"
  Shape shape;              // of the block: fewer rows, all other dimensions
  std::int64_t offset = 0;  // of its first element in the flat buffer
  int server = 0;
};

// Blocks of at most `block_elems` elements, but of at least one row, in the order of the flat
// buffer. Servers own ranges of blocks, in order, as equal in elements as blocks allow.
// kInvalidArgument where a server would own none.
Result<std::vector<KeyBlock>> cut_into_blocks(const ParameterTable& table, std::int64_t block_elems,
                                              int servers);

// A range of the flat buffer.
struct FlatRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
// The blocks of `server`, and where they lie.
std::vector<KeyBlock> blocks_of(std::span<const KeyBlock> blocks, int server);
FlatRange range_of(std::span<const KeyBlock> blocks, int server);

// The elements of `block` in `flat`, whose first element is element `origin` of the flat buffer.
template <typename T>
std::span<T> part_of(std::span<T> flat, const KeyBlock& block, std::int64_t origin = 0) {
  return flat.subspan(static_cast<std::size_t>(block.offset - origin),
                      static_cast<std::size_t>(block.shape.elems()));
}

}  // namespace gradwire
