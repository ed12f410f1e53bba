// Sizes of tensors in rules: "64K..", "..1MB", "4096..1M".
#pragma once

#include <string_view>

#include "gradwire/registry.h"
#include "gradwire/status.h"

namespace gradwire {

// The part of a rule between "@" and "=". kInvalidArgument quotes the text and says what is wanted.
Result<SizeRange> parse_size_range(std::string_view text);

}  // namespace gradwire
