#include "compress/size_range.h"

#include <optional>
#include <string>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

struct Size {
  std::int64_t count = 0;
  bool in_bytes = false;
};

std::optional<Size> read_size(std::string_view text) {
  Size size;
  if (text.ends_with('B')) {
    size.in_bytes = true;
    text.remove_suffix(1);
  }
  int shift = 0;
  if (!text.empty()) {
    const char last = text.back();
    shift = last == 'K' ? 10 : last == 'M' ? 20 : last == 'G' ? 30 : 0;
    if (shift != 0) text.remove_suffix(1);
  }
  const auto count = to_int(text);
  if (!count || *count < 0 || *count > (kMost >> shift)) return std::nullopt;
  size.count = *count << shift;
  return size;
}

std::string written(std::int64_t count, bool in_bytes) {
  static constexpr struct {
    int shift;
    const char* unit;
  } kUnits[] = {{30, "G"}, {20, "M"}, {10, "K"}, {0, ""}};
  for (const auto& [shift, unit] : kUnits) {
    if (shift > 0 && (count == 0 || count % (std::int64_t{1} << shift) != 0)) continue;
    return std::to_string(count >> shift) + unit + (in_bytes ? "B" : "");
  }
  return "";
}

Status refused(std::string_view text, const std::string& why) {
  return {Code::kInvalidArgument,
          "'" + std::string(text) + "' " + why +
              " (expected LEAST..BELOW, either may be left out, in elements such as 4096 or 64K, "
              "or in bytes such as 4096B or 1MB)"};
}

}  // namespace

Result<SizeRange> parse_size_range(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos || text.size() == 2) return refused(text, "is no size");
  SizeRange range;
  std::optional<bool> in_bytes;
  const struct {
    std::string_view part;
    std::int64_t& end;
  } ends[] = {{text.substr(0, dots), range.least}, {text.substr(dots + 2), range.below}};
  for (const auto& [part, end] : ends) {
    if (part.empty()) continue;
    const auto size = read_size(part);
    if (!size) return refused(text, "is no size: '" + std::string(part) + "'");
    if (in_bytes.value_or(size->in_bytes) != size->in_bytes) {
      return refused(text, "mixes elements and bytes");
    }
    in_bytes = size->in_bytes;
    end = size->count;
  }
  range.in_bytes = in_bytes.value_or(false);
  if (range.least >= range.below) return refused(text, "holds no size");
  return range;
}

bool SizeRange::holds(std::int64_t elems, std::size_t element_bytes) const {
  const std::int64_t size = in_bytes ? elems * static_cast<std::int64_t>(element_bytes) : elems;
  return size >= least && size < below;
}

bool SizeRange::covers(const SizeRange& other) const {
  if (*this == SizeRange{.in_bytes = in_bytes}) return true;
  return in_bytes == other.in_bytes && least <= other.least && below >= other.below;
}

std::string to_string(const SizeRange& sizes) {
  if (sizes.least == 0 && sizes.below == kMost) return "";
  return "@" + (sizes.least == 0 ? "" : written(sizes.least, sizes.in_bytes)) + ".." +
         (sizes.below == kMost ? "" : written(sizes.below, sizes.in_bytes));
}

}  // namespace gradwire
