// Message text without a formatting library: printf formats, checked by the compiler.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire {

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

// Whole-string conversions; nullopt on anything else (blanks, trailing text, overflow, NaN,
// infinity).
std::optional<std::int64_t> to_int(std::string_view text);
std::optional<double> to_double(std::string_view text);

// The shortest decimal text that reads back as the same double.
std::string shortest(double value);

// With ", " between them.
std::string joined(const std::vector<std::string>& words);

}  // namespace gradwire
