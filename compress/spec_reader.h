// What a method's factory reads its keys with: values checked one by one, errors naming method, key
// and value. Registry::make has refused unknown keys and resolved the bare value before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/registry.h"

namespace gradwire {

class SpecReader {
 public:
  explicit SpecReader(const Spec& spec) : spec_(spec) {}

  bool has(std::string_view key) const { return find(key).has_value(); }
  // The value, or `fallback` when the key is absent. kInvalidArgument outside [least, most] or when
  // malformed.
  Result<std::int64_t> integer(std::string_view key, std::int64_t fallback, std::int64_t least,
                               std::int64_t most) const;
  // In (above, most].
  Result<double> number(std::string_view key, double fallback, double above, double most) const;
  // In [0, most].
  Result<double> number_from_zero(std::string_view key, double fallback, double most) const;
  Result<bool> boolean(std::string_view key, bool fallback) const;
  Result<std::string> choice(std::string_view key, std::string_view fallback,
                             const std::vector<std::string>& allowed) const;

 private:
  std::optional<std::string> find(std::string_view key) const;
  Status wrong(std::string_view key, const std::string& value, const std::string& wanted,
               const std::string& hint = "") const;
  const Spec& spec_;
};

}  // namespace gradwire
