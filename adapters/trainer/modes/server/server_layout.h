// Who is what where parameters live on servers: ranks 0 .. servers - 1 serve, the others work.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "adapters/trainer/modes/server/key_blocks.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "trainer/optimizers/optimizer.h"
#include "trainer/parameters.h"

namespace gradwire {

struct ServerOptions {
  int servers = 1;
  std::int64_t block_elems = 1 << 20;  // of a key block, at most
  std::string push = "none";           // compressor of gradients
  std::string pull = "none";           // compressor of what a worker's copy of the model lacks
  bool allow_unsafe = false;
  std::uint64_t seed = 0;
  OptimizerOptions optimizer = {};  // of servers; its momentum is ModeOptions'
};

class ServerLayout {
 public:
  // kInvalidArgument unless there is a server, a worker, and a block for each server.
  static Result<ServerLayout> create(const Communicator& world, const ParameterTable& table,
                                     const ServerOptions& options);

  int servers() const { return servers_; }
  int workers() const { return size_ - servers_; }
  bool serves() const { return rank_ < servers_; }
  // This rank's number among its kind.
  int number() const { return serves() ? rank_ : rank_ - servers_; }
  std::vector<KeyBlock> blocks(int server) const { return blocks_of(blocks_, server); }
  FlatRange range(int server) const { return range_of(blocks_, server); }
  // Its elements of a flat buffer.
  template <typename T>
  std::span<T> part(std::span<T> flat, int server) const {
    const FlatRange own = range(server);
    return flat.subspan(static_cast<std::size_t>(own.first), static_cast<std::size_t>(own.count));
  }

 private:
  int rank_ = 0;
  int size_ = 1;
  int servers_ = 1;
  std::vector<KeyBlock> blocks_;
};

// Of elements [range.first, range.first + range.count) of the flat buffer. kInvalidArgument as
// make_optimizer(), and for lamb where the range cuts a tensor.
Result<std::unique_ptr<Optimizer>> optimizer_within(const ParameterTable& table,
                                                    const FlatRange& range,
                                                    const OptimizerOptions& options);

// Collective: every rank's `params` become the servers' values. Workers that are done early wait
// here for those that are not, however long these take; whoever is lost ends it.
Status share_parameters(Communicator& world, const ServerLayout& layout, std::span<float> params);

}  // namespace gradwire
