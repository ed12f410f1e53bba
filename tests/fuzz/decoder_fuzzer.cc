// One libFuzzer target per decoder: GW_FUZZ_SPEC names it. Run: fuzz_decoder_topk
// -max_total_time=60
#include <cstddef>
#include <cstdint>

#include "gradwire/registry.h"
#include "tests/fuzz/decoder_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Once: all methods are described to make one, which takes longer than an input.
  static const auto compressor = gradwire::Registry::builtin().make(GW_FUZZ_SPEC);
  gradwire::fuzz::feed_decoder(*compressor.value(), std::as_bytes(std::span(data, size)));
  return 0;
}
