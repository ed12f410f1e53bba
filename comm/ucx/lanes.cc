#include "comm/ucx/lanes.h"

#include <algorithm>

#include "comm/ucx/settings.h"

namespace gradwire::ucx {
namespace {

// Devices of transports between processes of one host: "memory", "memory0".
bool on_host(const Lane& lane) { return lane.device.starts_with("memory"); }

void add(std::vector<Lane>& lanes, std::string_view transport, std::string_view device) {
  const Lane lane{std::string(transport), std::string(device)};
  if (!transport.empty() && std::ranges::find(lanes, lane) == lanes.end()) lanes.push_back(lane);
}

}  // namespace

// Lines such as "#     lane[0]:  3:sysv/memory.0 md[2]   -> md[2]/sysv/sysdev[255] am am_bw#0".
std::vector<Lane> lanes_in(std::string_view text) {
  std::vector<Lane> lanes;
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
    const std::string_view resource = line.substr(slash + 1, line.find(' ', slash) - slash - 1);
    add(lanes, line.substr(colon + 1, slash - colon - 1), resource.substr(0, resource.rfind('.')));
  }
  return lanes;
}

std::vector<Lane> lanes_of(ucp_ep_h endpoint) {
#if UCP_API_VERSION >= UCP_VERSION(1, 15)
  ucp_transport_entry_t entries[16];
  ucp_ep_attr_t attributes{};
  attributes.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS;
  attributes.transports.entries = entries;
  attributes.transports.num_entries = 16;
  attributes.transports.entry_size = sizeof(ucp_transport_entry_t);
  std::vector<Lane> lanes;
  if (ucp_ep_query(endpoint, &attributes) != UCS_OK) return lanes;
  for (unsigned i = 0; i < attributes.transports.num_entries; ++i)
    add(lanes, entries[i].transport_name, entries[i].device_name);
  return lanes;
#else
  return lanes_in(printed([endpoint](std::FILE* file) { ucp_ep_print_info(endpoint, file); }));
#endif
}

std::string text_of(const std::vector<Lane>& lanes) {
  std::string text;
  std::vector<std::string> said;
  for (const Lane& lane : lanes) {
    const std::string name = on_host(lane) ? lane.transport : lane.transport + "/" + lane.device;
    if (std::ranges::find(said, name) != said.end()) continue;
    said.push_back(name);
    text += (text.empty() ? "" : "+") + name;
  }
  return text.empty() ? "?" : text;
}

bool network_only(const std::vector<Lane>& lanes) {
  return !lanes.empty() && std::ranges::none_of(lanes, on_host);
}

}  // namespace gradwire::ucx
