#include "compress/spec_reader.h"

#include <algorithm>

#include "base/nearest.h"
#include "base/text.h"

namespace gradwire {

std::optional<std::string> SpecReader::find(std::string_view key) const {
  for (const auto& [name, value] : spec_.params) {
    if (name == key) return value;
  }
  return std::nullopt;
}

Status SpecReader::wrong(std::string_view key, const std::string& value, const std::string& wanted,
                         const std::string& hint) const {
  return {Code::kInvalidArgument, "compressor '" + spec_.name + "': key '" + std::string(key) +
                                      "' is '" + value + "'" + hint + " (expected " + wanted + ")"};
}

Result<std::int64_t> SpecReader::integer(std::string_view key, std::int64_t fallback,
                                         std::int64_t least, std::int64_t most) const {
  const auto text = find(key);
  if (!text) return fallback;
  const auto value = to_int(*text);
  if (value && *value >= least && *value <= most) return *value;
  return wrong(key, *text,
               format("an integer from %lld to %lld", static_cast<long long>(least),
                      static_cast<long long>(most)));
}

Result<double> SpecReader::number(std::string_view key, double fallback, double above,
                                  double most) const {
  const auto text = find(key);
  if (!text) return fallback;
  const auto value = to_double(*text);
  if (value && *value > above && *value <= most) return *value;
  return wrong(key, *text, "a number above " + shortest(above) + ", at most " + shortest(most));
}

Result<double> SpecReader::number_from_zero(std::string_view key, double fallback,
                                            double most) const {
  const auto text = find(key);
  if (!text) return fallback;
  const auto value = to_double(*text);
  if (value && *value >= 0 && *value <= most) return *value;
  return wrong(key, *text, "a number from 0 to " + shortest(most));
}

Result<bool> SpecReader::boolean(std::string_view key, bool fallback) const {
  const auto text = find(key);
  if (!text) return fallback;
  if (*text == "true") return true;
  if (*text == "false") return false;
  return wrong(key, *text, "true or false");
}

Result<std::string> SpecReader::choice(std::string_view key, std::string_view fallback,
                                       const std::vector<std::string>& allowed) const {
  const auto text = find(key);
  if (!text) return std::string(fallback);
  if (std::find(allowed.begin(), allowed.end(), *text) != allowed.end()) return *text;
  return wrong(key, *text, "one of " + joined(allowed), did_you_mean(*text, allowed));
}

}  // namespace gradwire
