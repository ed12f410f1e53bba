// One libFuzzer target per decoder: GW_FUZZ_SPEC names it. Run: fuzz_decoder_topk
// -max_total_time=60
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/decoder_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gradwire::fuzz::feed_decoder(GW_FUZZ_SPEC, std::as_bytes(std::span(data, size)));
  return 0;
}
