// The sum over ranks of vectors that travel compressed, with every rank's own part as the others
// have it.
//
// Every rank encodes its vector block by block, gathers all payloads, and adds up what they decode
// to in rank order: the same bits on all ranks, (p - 1) payloads received by each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "adapters/trainer/modes/block_coder.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"
#include "trainer/parameters.h"

namespace gradwire {

class CodedSum {
 public:
  // `communicator` is borrowed. A spec with ef keeps what was not sent of this rank's vectors.
  static Result<CodedSum> open(Communicator& communicator, const Registry& registry,
                               const ParameterTable& table, const BlockCoding& coding);

  // Collective; blocks. `own` becomes what the others decode of it, `sum` the sum over ranks.
  Status sum(std::span<float> own, std::uint64_t step, std::span<float> sum);
  // What its coders keep between sums, as MessageCoder::state().
  std::vector<NamedTensor> state();

 private:
  explicit CodedSum(Communicator& communicator) : communicator_(&communicator) {}

  Communicator* communicator_;
  std::vector<MessageCoder> decoders_;  // by rank
  std::optional<MessageCoder> encoder_;
  std::vector<std::byte> payload_;
  std::vector<std::byte> all_;
  std::vector<std::int64_t> lengths_;
  std::vector<float> decoded_;
};

}  // namespace gradwire
