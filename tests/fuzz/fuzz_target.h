// A fuzz target: one function that takes any bytes, and some bytes worth starting from.
//
// Built twice: with libFuzzer (clang, -Dfuzz=true), and with replay_main.cc as a test of the unit
// suite that any compiler builds, which feeds the seeds and small changes of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Must come back, whatever the bytes. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace gradwire::fuzz {

using Bytes = std::vector<std::uint8_t>;

// Valid inputs and near misses, made in code.
std::vector<Bytes> seeds();

}  // namespace gradwire::fuzz
