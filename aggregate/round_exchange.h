// One round of a bucket: the payloads that its coders write in it, exchanged together.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "aggregate/coder_set.h"
#include "aggregate/exchange.h"
#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/work.h"

namespace gradwire {

// As BucketExchange, of one phase; coders have begun before and finish after the last round.
class RoundExchange {
 public:
  virtual ~RoundExchange() = default;
  virtual Result<std::size_t> encode() = 0;
  virtual Result<std::optional<Work>> issue() = 0;
  virtual Status absorb() = 0;
  virtual std::size_t held_bytes() const = 0;  // as BucketExchange's
};

// `coders` are lent for the exchange's life, and what was received stays until the next encode().

// Payloads combine in the network. All coders have this round, of one kind.
Result<std::unique_ptr<RoundExchange>> make_reduce_round(const ExchangeContext& context,
                                                         std::vector<CodedParameter>& coders,
                                                         int round);
// Payloads are gathered. Coders without this round take no part.
Result<std::unique_ptr<RoundExchange>> make_gather_round(const ExchangeContext& context,
                                                         std::vector<CodedParameter>& coders,
                                                         int round);

// For payloads that the method would have had reduced in the network, where they are gathered: sum
// = what an all-reduce of them in rank order gives, with `next` as room. Both grow where they are
// too small, on stream.device, where payloads lie; work is enqueued. kCorruptPayload unless
// payloads are equally long.
Status reduce_payloads(const std::vector<ConstByteSpan>& payloads, const RoundKind& kind,
                       const Stream& stream, Buffer& sum, Buffer& next);

}  // namespace gradwire
