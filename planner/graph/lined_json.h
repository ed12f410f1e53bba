// JSON with the lines on which its values stand, for files that people write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

struct LinedJson {
  enum class Kind : std::uint8_t { kNull, kFlag, kInteger, kNumber, kText, kArray, kObject };
  Kind kind = Kind::kNull;
  int line = 0;  // 1 is the first; of an array or object: where it begins
  bool flag = false;
  std::int64_t integer = 0;
  double number = 0;  // of an integer, too
  std::string text = {};
  std::vector<LinedJson> elements = {};                         // of an array
  std::vector<std::pair<std::string, LinedJson>> members = {};  // of an object, in its order

  // Null where there is no such member.
  const LinedJson* find(std::string_view key) const;
};

// kInvalidArgument with "NAME:LINE: " in front: what is not JSON, integers beyond 64 bits, a key
// that stands twice in one object.
Result<LinedJson> parse_lined_json(const std::string& text, const std::string& name);

}  // namespace gradwire
