#include "comm/tcp/sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>

namespace gradwire::tcp {
namespace {

// What lies between hosts may forget a connection that is idle: a probe now and then keeps it
// known, and finds a peer that is gone.
void keep_alive(int fd) {
  constexpr int kOn = 1, kIdleSeconds = 60, kBetweenSeconds = 20, kProbes = 6;
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleSeconds, sizeof kIdleSeconds);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kBetweenSeconds, sizeof kBetweenSeconds);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
}

}  // namespace

Status check_congestion(const std::string& name) {
  const rendezvous::Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe.valid()) return {};  // what needs a socket next says so
  if (setsockopt(probe.get(), IPPROTO_TCP, TCP_CONGESTION, name.c_str(),
                 static_cast<socklen_t>(name.size())) == 0) {
    return {};
  }
  const std::string why = std::strerror(errno);
  std::string known;
  std::ifstream list("/proc/sys/net/ipv4/tcp_available_congestion_control");
  if (!std::getline(list, known) || known.empty()) known = "a name that the kernel knows";
  return {Code::kInvalidArgument,
          "got '" + name + "' (" + why + "), expected one of this machine's: " + known};
}

void prepare_bulk(int fd, bool same_host, const std::string& congestion) {
  keep_alive(fd);
  // What lies in a loopback connection should lie in a processor's cache, too, and is before all
  // that is more urgent. The kernel doubles it, for what it keeps beside the bytes.
  constexpr int kUnread = 256 << 10;
  if (same_host) (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kUnread, sizeof kUnread);
  const std::string name = congestion.empty() && same_host ? "reno" : congestion;
  if (name.empty()) return;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.c_str(),
                   static_cast<socklen_t>(name.size()));
}

void prepare_control(int fd, Deadline::duration patience) {
  keep_alive(fd);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  const unsigned timeout = static_cast<unsigned>(std::max<std::int64_t>(ms, 1000));
  (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
}

void limit_rate(int fd, double bytes_per_second) {
  const auto rate = static_cast<std::uint64_t>(bytes_per_second);
  (void)setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
}

std::string congestion_of(bool same_host, const std::string& congestion) {
  const rendezvous::Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (probe.valid()) prepare_bulk(probe.get(), same_host, congestion);
  std::array<char, 32> name{};
  socklen_t size = name.size() - 1;
  if (getsockopt(probe.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return "?";
  return name.data();
}

}  // namespace gradwire::tcp
