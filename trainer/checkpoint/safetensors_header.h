// The header of a safetensors file: which tensors it holds and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// A tensor of the file. Offsets are bytes from the start of its data.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F32", ...: also ones that gradwire has no type for
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// "F32", "BF16", ...: the format's names of element types.
std::string_view safetensors_name(DType type);
std::optional<DType> dtype_of_safetensors(std::string_view name);
std::vector<std::uint64_t> safetensors_shape(const Shape& shape);

// The length of a longest header: the limit of the format's own reader.
inline constexpr std::uint64_t kLongestSafetensorsHeader = 100'000'000;

// The bytes before a file's data: the length field and the header, for entries that follow one
// another without gaps.
std::string write_safetensors_header(std::span<const SafetensorsEntry> entries);

// `text`: what follows the length field. The entries' places must tile [0, data_bytes); "shape" and
// "data_offsets" are not compared with one another. In order of names; "__metadata__" is left out.
// kCorruptPayload names what is wrong.
Result<std::vector<SafetensorsEntry>> read_safetensors_header(std::string_view text,
                                                              std::uint64_t data_bytes);

}  // namespace gradwire
