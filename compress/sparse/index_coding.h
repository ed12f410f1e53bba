// How the places of chosen elements travel: the key index=u32|bitmap|gaps|auto of sparse methods.
//
//   indices := u32{k}                       u32: strictly ascending, below n
//            | bits{n}                      bitmap: bit i % 8 of byte i / 8; exactly k are set
//            | width gap{k}                 gaps: see below
//            | tag (u32 | bitmap | gaps)    auto: one byte, 0, 1 or 2; the shortest, the lowest tag
//                                           among equals
//   width   := u8, at most 32: bits per gap, as many as the largest one needs
//   gap     := `width` bits, low bits first; how many elements lie between this one and the one
//              before (the tensor's front for the first)
//
// Free bits of a last byte are 0. No elements chosen (k = 0): no bytes at all, whatever the coding.
// k and n are known to the reader. At density d gaps take about log2(1/d) + 3 bits each, a bitmap
// 1/d: it is shorter than u32 from d = 1/32 on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

enum class IndexCoding : std::uint8_t { kU32, kBitmap, kGaps, kAuto };
std::string_view to_string(IndexCoding coding);  // "u32", "bitmap", "gaps", "auto"

// Does the length follow from k and n alone?
bool has_fixed_length(IndexCoding coding);

// The most bytes that k of n indices take (all they take where the length is fixed). k <= n <=
// 2^32.
std::size_t most_index_bytes(IndexCoding coding, std::size_t k, std::size_t n);

// The most that most_index_bytes(coding, k, n) is for any k <= most <= n.
std::size_t most_index_bytes_up_to(IndexCoding coding, std::size_t most, std::size_t n);

// Writes `indices`, strictly ascending and below n, at the front of `out`, which has room for
// most_index_bytes(). Returns the bytes written.
std::size_t encode_indices(IndexCoding coding, std::span<const std::uint32_t> indices,
                           std::size_t n, ByteSpan out);

// Reads indices.size() indices from the front of `bytes`, which may be longer. Returns the bytes
// read. kCorruptPayload unless they are what an encoder may write: enough bytes, strictly ascending
// indices below n, a known tag, clear free bits.
Result<std::size_t> decode_indices(IndexCoding coding, ConstByteSpan bytes, std::size_t n,
                                   std::span<std::uint32_t> indices);

}  // namespace gradwire
