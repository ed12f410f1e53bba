#include "comm/tcp/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/text.h"

namespace gradwire::tcp {
namespace {

// What container and virtual machine engines call their ends of things.
constexpr std::array<std::string_view, 14> kInternal = {
    "docker", "br-",    "veth", "virbr", "vnet",  "cni", "flannel",
    "cali",   "podman", "lxc",  "lxdbr", "vmnet", "tap", "ifb"};

// Empty for a link-local one, which means nothing without its interface.
std::string numeric(const sockaddr& address) {
  const bool v6 = address.sa_family == AF_INET6;
  if (v6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)) {
    return "";
  }
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  (void)getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

bool leads_outside(const Interface& interface) {
  return interface.up && !interface.loopback && !interface.bridge &&
         std::ranges::none_of(kInternal, [&](std::string_view prefix) {
           return interface.name.starts_with(prefix);
         });
}

}  // namespace

std::vector<Interface> list_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<Interface> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family) continue;
      const std::string address = numeric(*at->ifa_addr);
      if (address.empty()) continue;
      const std::string bridge = std::string("/sys/class/net/") + at->ifa_name + "/bridge";
      found.push_back({at->ifa_name, address,
                       (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0,
                       (at->ifa_flags & IFF_LOOPBACK) != 0, access(bridge.c_str(), F_OK) == 0});
    }
  }
  return found;
}

Result<Interface> choose_interface(std::span<const Interface> interfaces, std::string_view wanted) {
  if (wanted.empty()) {
    const auto first = std::ranges::find_if(interfaces, leads_outside);
    return first == interfaces.end() ? Interface{} : *first;
  }
  for (std::string_view rest = wanted; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const auto named = std::ranges::find_if(interfaces, [&](const Interface& one) {
      return one.up && (one.name == name || one.address == name);
    });
    if (named != interfaces.end()) return *named;
  }
  return Status(
      Code::kInvalidArgument,
      format("tcp: no interface '%.*s' that is up (expected one of these: %s)",
             static_cast<int>(wanted.size()), wanted.data(), describe(interfaces).c_str()));
}

std::string loopback_name() {
  const std::vector<Interface> here = list_interfaces();
  const auto found =
      std::ranges::find_if(here, [](const Interface& one) { return one.loopback && one.up; });
  return found == here.end() ? "" : found->name;
}

std::string describe(std::span<const Interface> interfaces) {
  std::string text;
  for (const Interface& one : interfaces) {
    text += (text.empty() ? "" : ", ") + one.name + " " + one.address + (one.up ? "" : " (down)");
  }
  return text.empty() ? "none" : text;
}

}  // namespace gradwire::tcp
