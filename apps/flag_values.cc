#include "apps/flag_values.h"

#include <cmath>

#include "base/text.h"

namespace gradwire {

Status bad_value(const std::string& got, const std::string& expected, const std::string& hint) {
  return {Code::kInvalidArgument, "must be " + expected + " (got '" + got + "'" + hint + ")"};
}

std::string range_text(const Limits& limits) {
  const bool below = std::isfinite(limits.least);
  const bool above = std::isfinite(limits.most);
  if (below && above) return " from " + shortest(limits.least) + " to " + shortest(limits.most);
  if (below) return " of at least " + shortest(limits.least);
  if (above) return " of at most " + shortest(limits.most);
  return "";
}

bool inside(double value, const Limits& limits) {
  return value >= limits.least && value <= limits.most;
}

Result<std::int64_t> parse_bytes(const std::string& text) {
  int shift = 0;
  std::string digits = text;
  if (!digits.empty()) {
    const char last = digits.back();
    shift = last == 'K' ? 10 : last == 'M' ? 20 : last == 'G' ? 30 : 0;
    if (shift != 0) digits.pop_back();
  }
  const auto count = to_int(digits);
  if (!count || *count < 0 || *count > (std::numeric_limits<std::int64_t>::max() >> shift)) {
    return bad_value(text, "a number of bytes such as 4096, 64K, 25M or 1G");
  }
  return *count << shift;
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string list_text(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

}  // namespace gradwire
