// Values of flags: what is allowed, and the words of the error where a value is not.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// Integers and numbers outside are refused.
struct Limits {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

// "must be a whole number of at least 0 (got 'many')"; `hint` stands before the last parenthesis.
Status bad_value(const std::string& got, const std::string& expected, const std::string& hint = "");

// " from 0 to 1", " of at least 0", " of at most 1" or "".
std::string range_text(const Limits& limits);
bool inside(double value, const Limits& limits);

// 4096, 64K, 25M, 1G (powers of 1024); the error's text says what is expected.
Result<std::int64_t> parse_bytes(const std::string& text);

std::vector<std::string> split_commas(const std::string& text);
std::string list_text(const std::vector<std::string>& words, const char* between = ", ");

}  // namespace gradwire
