#include "comm/ucx/lanes.h"

#include <cstdio>
#include <cstdlib>

#include "base/text.h"

namespace gradwire::ucx {
namespace {

void add(std::string& lanes, std::string_view name) {
  if (name.empty() ||
      ("+" + lanes + "+").find("+" + std::string(name) + "+") != std::string::npos) {
    return;
  }
  if (!lanes.empty()) lanes += '+';
  lanes += name;
}

}  // namespace

std::string library_version() {
  unsigned major = 0, minor = 0, patch = 0;
  ucp_get_version(&major, &minor, &patch);
  return format("%u.%u.%u", major, minor, patch);
}

// Lines such as "#     lane[0]:  3:sysv/memory.0 md[2]   -> md[2]/sysv/sysdev[255] am am_bw#0".
std::string lanes_in(std::string_view text) {
  std::string lanes;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const std::size_t lane = line.find("lane[");
    if (lane == std::string_view::npos) continue;
    const std::size_t colon = line.find(':', line.find("]:", lane) + 2);
    const std::size_t slash = line.find('/', lane);
    if (colon == std::string_view::npos || slash == std::string_view::npos || slash < colon)
      continue;
    add(lanes, line.substr(colon + 1, slash - colon - 1));
  }
  return lanes.empty() ? "?" : lanes;
}

std::string lanes_of(ucp_ep_h endpoint) {
#if UCP_API_VERSION >= UCP_VERSION(1, 15)
  ucp_transport_entry_t entries[16];
  ucp_ep_attr_t attributes{};
  attributes.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS;
  attributes.transports.entries = entries;
  attributes.transports.num_entries = 16;
  attributes.transports.entry_size = sizeof(ucp_transport_entry_t);
  if (ucp_ep_query(endpoint, &attributes) != UCS_OK) return "?";
  std::string lanes;
  for (unsigned i = 0; i < attributes.transports.num_entries; ++i) {
    add(lanes, entries[i].transport_name);
  }
  return lanes.empty() ? "?" : lanes;
#else
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* file = open_memstream(&text, &bytes);
  if (file == nullptr) return "?";
  ucp_ep_print_info(endpoint, file);
  std::fclose(file);
  std::string lanes = lanes_in({text, bytes});
  std::free(text);
  return lanes;
#endif
}

}  // namespace gradwire::ucx
