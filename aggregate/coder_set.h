// The coders of a bucket's parameters, driven together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "aggregate/exchange.h"
#include "gradwire/coder.h"

namespace gradwire {

struct CodedParameter {
  const Parameter* parameter = nullptr;
  std::unique_ptr<Coder> coder;    // with error feedback around it where asked for
  std::vector<std::size_t> bytes;  // the most that encode(round) writes; one entry per round
  bool fixed = true;               // it always writes so much
  bool adds_up = false;            // absorbs one payload, the sum; else one per rank
  DType payload = DType::kU8;      // element type of payloads that add up
};

// Opens a coder for every member. Under kGather an elementwise method travels as slices, whose sum
// is taken in the gradient's own type; other methods that add up are summed after the exchange.
Result<std::vector<CodedParameter>> open_coders(const ExchangeContext& context,
                                                const Members& members, Path path);

int most_rounds(const std::vector<CodedParameter>& coders);
inline bool has_round(const CodedParameter& coded, int round) {
  return static_cast<std::size_t>(round) < coded.bytes.size();
}

// begin() of all.
Status begin_coders(std::vector<CodedParameter>& coders, std::uint64_t step);
// finish() of all: the means replace the gradients.
Status finish_coders(std::vector<CodedParameter>& coders);

std::vector<NamedTensor> coder_state(std::vector<CodedParameter>& coders);

}  // namespace gradwire
