#include "comm/tcp/sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

namespace gradwire::tcp {

void prepare_bulk(int fd, bool same_host, const std::string& congestion) {
  const std::string name = congestion.empty() && same_host ? "reno" : congestion;
  if (name.empty()) return;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.c_str(),
                   static_cast<socklen_t>(name.size()));
}

void prepare_control(int fd, Deadline::duration patience) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  const unsigned timeout = static_cast<unsigned>(std::max<std::int64_t>(ms, 1000));
  (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
}

void limit_rate(int fd, double bytes_per_second) {
  const auto rate = static_cast<std::uint64_t>(bytes_per_second);
  (void)setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
}

std::string congestion_of(int fd) {
  std::array<char, 32> name{};
  socklen_t size = name.size() - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return "?";
  return name.data();
}

}  // namespace gradwire::tcp
