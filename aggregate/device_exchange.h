// Gradients on a device: coders encode and decode there, payloads travel as the communicator has it
// (through pinned memory, by NCCL, in UCX's hands). Work of all buckets goes to one stream of the
// aggregator's own: nothing of a bucket before its gradients are final on the device (engine.h). An
// exchange begins when its encoding is done, and a bucket has landed when its decoding is.
#pragma once

#include <memory>
#include <vector>

#include "aggregate/coder_set.h"
#include "aggregate/exchange.h"
#include "aggregate/round_exchange.h"
#include "gradwire/status.h"

namespace gradwire {

// As make_dense_exchange() and make_gather_round(), where context.lane is there.
Result<std::unique_ptr<BucketExchange>> make_dense_exchange_on_device(
    const ExchangeContext& context, Members members);
Result<std::unique_ptr<RoundExchange>> make_gather_round_on_device(
    const ExchangeContext& context, std::vector<CodedParameter>& coders, int round);

}  // namespace gradwire
