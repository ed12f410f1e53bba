#include "trainer/data/digits.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "trainer/data/file_bytes.h"

namespace gradwire {
namespace {

// Takes the text before the next `end` (or all of it) off the front of `rest`.
std::string_view take_until(std::string_view& rest, char end) {
  const std::size_t length = std::min(rest.find(end), rest.size());
  const std::string_view piece = rest.substr(0, length);
  rest.remove_prefix(std::min(length + 1, rest.size()));
  return piece;
}

Status read_line(std::string_view line, Samples& samples) {
  constexpr std::int64_t kPixels = kDigitsShape.elems();
  for (std::int64_t column = 0; column <= kPixels; ++column) {
    if (line.empty()) {
      return Status(Code::kCorruptPayload,
                    format("%lld values (expected %lld)", static_cast<long long>(column),
                           static_cast<long long>(kPixels + 1)));
    }
    const bool is_label = column == kPixels;
    const std::string_view field = take_until(line, ',');
    const std::int64_t highest = is_label ? 9 : 16;
    const std::optional<std::int64_t> value = to_int(field);
    if (!value || *value < 0 || *value > highest) {
      return Status(Code::kCorruptPayload,
                    format("value '%.*s' in column %lld (expected an integer of 0 to %lld)",
                           static_cast<int>(field.size()), field.data(),
                           static_cast<long long>(column + 1), static_cast<long long>(highest)));
    }
    (is_label ? samples.labels : samples.pixels).push_back(static_cast<std::uint8_t>(*value));
  }
  if (line.empty()) return {};
  return Status(Code::kCorruptPayload, format("more than %lld values (expected exactly that many)",
                                              static_cast<long long>(kPixels + 1)));
}

}  // namespace

Result<Samples> read_digits(const std::string& path) {
  GW_ASSIGN(const std::vector<std::uint8_t> bytes, read_file_bytes(path, std::size_t{1} << 24));
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Samples samples;
  for (int number = 1; !rest.empty(); ++number) {
    std::string_view line = take_until(rest, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    GW_TRY(read_line(line, samples).with_context(format("%s: line %d", path.c_str(), number)));
  }
  return samples;
}

}  // namespace gradwire
