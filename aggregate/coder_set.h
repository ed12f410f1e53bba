// The coders of a bucket's parameters, driven together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "aggregate/exchange.h"
#include "gradwire/coder.h"

namespace gradwire {

struct CodedRound {
  RoundKind kind;         // as the method claims it
  std::size_t bytes = 0;  // the most that encode(round) writes
};

struct CodedParameter {
  const Parameter* parameter = nullptr;
  std::unique_ptr<Coder> coder;    // with error feedback around it where asked for
  std::vector<CodedRound> rounds;  // one entry per round
};

// Opens a coder for every member. Under kGather an elementwise method travels as slices, whose sum
// is taken in the gradient's own type; payloads of other methods that reduce are gathered, and
// reduced after the exchange.
Result<std::vector<CodedParameter>> open_coders(const ExchangeContext& context,
                                                const Members& members, Path path);

int most_rounds(const std::vector<CodedParameter>& coders);

// encode() of one coder into the front of `room`; returns the bytes written. kInternal naming the
// parameter when it wrote another length than it claims.
Result<std::size_t> encode_round(CodedParameter& coded, int round, ByteSpan room,
                                 const Stream& stream = {});

// Null when the coder has no such round.
inline const CodedRound* round_of(const CodedParameter& coded, int round) {
  const auto r = static_cast<std::size_t>(round);
  return r < coded.rounds.size() ? &coded.rounds[r] : nullptr;
}

// encode_round() of all that have this round, one after another at the front of `room`, which takes
// the most that each may write; returns the bytes written, `lengths` those of each. Here and below:
// each coder on whichever of `workers` is free (null: on the caller's thread); the error is that of
// the first coder that has one.
Result<std::size_t> encode_all(std::vector<CodedParameter>& coders, int round, ByteSpan room,
                               std::vector<std::size_t>& lengths, Workers* workers,
                               const Stream& stream = {});

// begin() of all.
Status begin_coders(std::vector<CodedParameter>& coders, std::uint64_t step, Workers* workers,
                    const Stream& stream = {});
// finish() of all: the means replace the gradients.
Status finish_coders(std::vector<CodedParameter>& coders, Workers* workers,
                     const Stream& stream = {});

std::vector<NamedTensor> coder_state(std::vector<CodedParameter>& coders);

}  // namespace gradwire
