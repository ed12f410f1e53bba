// Numbers in fewer bits between the places that compute with them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// What parameters and gradients are stored in. Layers compute in fp32 from what was stored, and the
// optimizer keeps parameters of its own in fp32 (the master), so that small steps add up.
enum class Precision : std::uint8_t { kF32, kBF16, kF16 };

// "fp32", "bf16", "fp16".
std::string_view to_string(Precision precision);
Result<Precision> parse_precision(std::string_view text);
// Of what is stored.
DType dtype_of(Precision precision);
// Of f32, bf16 and f16; kF32 of others.
Precision precision_of(DType stored);

// to = from in 16 bits, rounded to nearest even; what is too large becomes infinity. Not for kF32.
void store(Precision precision, std::span<const float> from, std::span<std::uint16_t> to);
// values = what 16 bits keep of them. Not for kF32.
void round_to(Precision precision, std::span<float> values);
// to = from, exactly.
void load(Precision precision, std::span<const std::uint16_t> from, std::span<float> to);
// sums += from.
void add(Precision precision, std::span<const std::uint16_t> from, std::span<float> sums);
// The first half of the values' memory is what store() makes of them; returns it.
std::span<std::uint16_t> store_in_place(Precision precision, std::span<float> values);

// store() and load() of memory of the stream's device, enqueued there; on the host done on return.
Status store(Precision precision, std::span<const float> from, std::span<std::uint16_t> to,
             const Stream& stream);
Status load(Precision precision, std::span<const std::uint16_t> from, std::span<float> to,
            const Stream& stream);

}  // namespace gradwire
