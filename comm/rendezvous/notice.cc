#include "comm/rendezvous/notice.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"

namespace gradwire::rendezvous {
namespace {

constexpr std::string_view kVersion1 = "gradwire1";

}  // namespace

std::string encode(const Notice& notice) {
  return format("%s;%s;%d;%s;%s", kVersion1.data(), notice.place.host.c_str(), notice.place.port,
                notice.session.c_str(), notice.secret.c_str());
}

Result<Notice> parse_notice(std::string_view text) {
  std::array<std::string_view, 5> words;
  std::string_view rest = text;
  std::size_t count = 0;
  for (; count < words.size(); ++count) {
    const std::size_t end = count + 1 < words.size() ? rest.find(';') : rest.size();
    if (end == std::string_view::npos) break;
    words[count] = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto port = to_int(words[2]);
  const bool good = count == words.size() && words[0] == kVersion1 && !words[1].empty() && port &&
                    *port >= 1 && *port <= 65535 && !words[3].empty();
  if (good)
    return Notice{{std::string(words[1]), static_cast<int>(*port)},
                  std::string(words[3]),
                  std::string(words[4])};
  return Status(Code::kInvalidArgument,
                "rank 0's notice is '" + std::string(text) +
                    "' (expected one of this version of gradwire, on all ranks)");
}

}  // namespace gradwire::rendezvous
