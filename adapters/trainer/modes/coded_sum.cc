#include "adapters/trainer/modes/coded_sum.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/philox.h"
#include "base/text.h"

namespace gradwire {

Result<CodedSum> CodedSum::open(Communicator& communicator, const Registry& registry,
                                const ParameterTable& table, const BlockCoding& coding) {
  CodedSum made(communicator);
  GW_ASSIGN(const std::vector<KeyBlock> blocks,
            cut_into_blocks(table, std::numeric_limits<std::int64_t>::max(), 1));
  for (int rank = 0; rank < communicator.size(); ++rank) {
    BlockCoding theirs = coding;
    theirs.seed = mix64(coding.seed + static_cast<std::uint64_t>(rank));
    GW_ASSIGN(MessageCoder decoder,
              MessageCoder::open(registry, theirs, blocks, BlockCoder::End::kReceiver, true));
    made.decoders_.push_back(std::move(decoder));
    if (rank != communicator.rank()) continue;
    GW_ASSIGN(made.encoder_,
              MessageCoder::open(registry, theirs, blocks, BlockCoder::End::kSender, true));
  }
  made.decoded_.resize(static_cast<std::size_t>(parameter_elems(table)));
  return made;
}

Status CodedSum::sum(std::span<float> own, std::uint64_t step, std::span<float> sum) {
  payload_.clear();
  GW_TRY(encoder_->encode(own, step, payload_));
  GW_ASSIGN(Work work, communicator_->all_gather_unsized(payload_, all_, lengths_));
  GW_TRY(work.wait());
  ConstByteSpan rest(all_);
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto length = static_cast<std::size_t>(lengths_[r]);
    const Status decoded = decoders_[r].decode(rest.first(length), step, decoded_);
    if (!decoded.ok()) return decoded.with_context(format("from rank %d", rank));
    rest = rest.subspan(length);
    if (rank == communicator_->rank()) std::ranges::copy(decoded_, own.begin());
    if (rank == 0) {
      std::ranges::copy(decoded_, sum.begin());
    } else {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += decoded_[i];
    }
  }
  return {};
}

std::vector<NamedTensor> CodedSum::state() {
  std::vector<NamedTensor> all;
  const auto add = [&all](const std::string& prefix, MessageCoder& coder) {
    for (NamedTensor& entry : coder.state()) all.push_back({prefix + entry.name, entry.tensor});
  };
  add("encoder/", *encoder_);
  for (std::size_t rank = 0; rank < decoders_.size(); ++rank) {
    add("decoder-" + std::to_string(rank) + "/", decoders_[rank]);
  }
  return all;
}

}  // namespace gradwire
