// What the fuzzers of decoders and their replay in the unit suite have in common: bytes in, a
// promise checked.
#pragma once

#include "gradwire/compressor.h"

namespace gradwire::fuzz {

// Input: byte 0 picks the shape, byte 1 the element type (bit 0), whether the payload is cut or
// filled to the length that the decoder wants (bit 1) and the stage of a slice (bit 2), byte 2 the
// round; the rest is a payload. Rank 0 of two absorbs it as the other rank's payload (or as the
// sum), and elementwise methods unpack it as a slice.
inline constexpr std::size_t kHeaderBytes = 3;
inline constexpr int kShapes = 5;
Shape shape_of(std::uint8_t choice);

// Aborts unless every decoder returned ok or kCorruptPayload.
void feed_decoder(const Compressor& compressor, ConstByteSpan input);

}  // namespace gradwire::fuzz
