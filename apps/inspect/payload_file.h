// A payload in a file, with what is needed to decode it: for `gradwire inspect` and bug reports.
//
//   file   := "gradwire payload 1\n" {line} "end\n" bytes
//   line   := "spec " SPEC "\n"            one method, no aggregator keys
//           | "shape " dim {" " dim} "\n"  one to four positive dimensions
//           | "dtype " ("f32" | "f64") "\n"
//           | "seed " N "\n"               of shared randomness
//           | "step " N "\n"
//           | "rounds " length {" " length} "\n"   bytes per round
//   bytes  := the rounds' payloads, one after another, as one rank of one wrote them
// Every line stands exactly once, in this order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/registry.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

struct PayloadFile {
  std::string spec;
  Shape shape;
  DType dtype = DType::kF32;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::vector<std::vector<std::byte>> rounds;
};

// More elements are refused, so that a hostile header cannot ask for all memory.
inline constexpr std::int64_t kMaxPayloadElems = std::int64_t{1} << 28;

std::vector<std::byte> format_payload_file(const PayloadFile& file);
// kCorruptPayload names the line and what it should hold. The contents are checked by decoding.
Result<PayloadFile> parse_payload_file(ConstByteSpan bytes);

// Encodes fp32 elements; `values` has shape.elems() of them.
Result<PayloadFile> encode_payload(const Registry& registry, const std::string& spec, Shape shape,
                                   std::uint64_t seed, std::vector<float> values);

// What the payload says the gradient was, as f64 whatever the dtype.
Result<std::vector<double>> decode_payload(const Registry& registry, const PayloadFile& file);

}  // namespace gradwire
