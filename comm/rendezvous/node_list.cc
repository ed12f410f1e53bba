#include "comm/rendezvous/node_list.h"

#include <cstddef>

namespace gradwire::rendezvous {
namespace {

Status bad(std::string_view list, const char* why) {
  return {Code::kInvalidArgument, "got '" + std::string(list) + "', " + why +
                                      " (expected a list of hosts such as rack[03-07,11],login)"};
}

}  // namespace

Result<std::string> first_host(std::string_view list) {
  std::string host;
  std::size_t at = 0;
  while (at < list.size() && list[at] != ',') {
    if (list[at] == ']') return bad(list, "an unmatched ']'");
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string_view::npos) return bad(list, "an unmatched '['");
    const std::string_view inside = list.substr(at + 1, close - at - 1);
    const std::string_view first = inside.substr(0, inside.find_first_of("-,"));
    if (first.empty()) return bad(list, "a bracket without a number");
    host += first;
    at = close + 1;
  }
  if (host.empty()) return bad(list, "no host");
  return host;
}

}  // namespace gradwire::rendezvous
