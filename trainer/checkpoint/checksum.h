// XXH3 of what a checkpoint holds: damage is told from data, forgery is not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/tensor.h"

namespace gradwire {

std::uint64_t checksum_of(ConstByteSpan bytes);
std::uint64_t checksum_of(std::string_view text);

// 16 hexadecimal digits in lower case; nullopt for any other text.
std::string checksum_text(std::uint64_t checksum);
std::optional<std::uint64_t> checksum_of_text(std::string_view text);

}  // namespace gradwire
