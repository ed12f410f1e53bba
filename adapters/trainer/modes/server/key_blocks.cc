#include "adapters/trainer/modes/server/key_blocks.h"

#include <algorithm>

#include "base/text.h"

namespace gradwire {

Result<std::vector<KeyBlock>> cut_into_blocks(const ParameterTable& table, std::int64_t block_elems,
                                              int servers) {
  if (block_elems < 1 || servers < 1) {
    return Status(
        Code::kInvalidArgument,
        format(
            "parameter server: blocks of %lld elements on %d servers (expected at least 1 of each)",
            static_cast<long long>(block_elems), servers));
  }
  const std::int64_t total = parameter_elems(table);
  std::vector<KeyBlock> blocks;
  for (const ParameterInfo& info : table) {
    const std::int64_t rows = info.shape.dim[0];
    const std::int64_t row_elems = info.shape.elems() / std::max<std::int64_t>(rows, 1);
    const std::int64_t most =
        std::max<std::int64_t>(block_elems / std::max<std::int64_t>(row_elems, 1), 1);
    for (std::int64_t row = 0; row < rows; row += most) {
      KeyBlock block{info.name, info.shape, info.offset + row * row_elems, 0};
      block.shape.dim[0] = std::min(most, rows - row);
      // The server in whose equal part of the flat buffer the block's middle lies.
      const std::int64_t middle = 2 * block.offset + block.shape.elems();
      block.server = static_cast<int>(middle * servers / (2 * total));
      blocks.push_back(std::move(block));
    }
  }
  for (int server = 0; server < servers; ++server) {
    if (range_of(blocks, server).count > 0) continue;
    return Status(Code::kInvalidArgument,
                  format("parameter server: no block for server %d of %d (%zu blocks of at "
                         "most %lld elements); use fewer servers or smaller blocks",
                         server, servers, blocks.size(), static_cast<long long>(block_elems)));
  }
  return blocks;
}

std::vector<KeyBlock> blocks_of(std::span<const KeyBlock> blocks, int server) {
  std::vector<KeyBlock> own;
  for (const KeyBlock& block : blocks) {
    if (block.server == server) own.push_back(block);
  }
  return own;
}

FlatRange range_of(std::span<const KeyBlock> blocks, int server) {
  FlatRange range;
  for (const KeyBlock& block : blocks) {
    if (block.server != server) continue;
    if (range.count == 0) range.first = block.offset;
    range.count += block.shape.elems();
  }
  return range;
}

}  // namespace gradwire
