#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>

#include "comm/tcp/interfaces.h"
#include "comm/tcp/sockets.h"
#include "tests/support/names.h"

namespace gradwire::tcp::tcp_interfaces_test {
namespace {

const std::vector<Interface> kSeen = {
    {"lo", "127.0.0.1", true, true, false},    {"docker0", "172.17.0.1", true, false, true},
    {"lan", "192.168.0.1", true, false, true}, {"veth12", "10.9.0.1", true, false, false},
    {"eth0", "10.0.0.7", false, false, false}, {"eth1", "10.0.1.7", true, false, false},
    {"ib0", "10.1.0.7", true, false, false},   {"eth1", "2001:db8::7", true, false, false},
};

std::string chosen(std::string_view wanted) {
  const auto interface = choose_interface(kSeen, wanted);
  return interface.has_value() ? interface.value().name + " " + interface.value().address
                               : std::string(interface.error().message());
}

TEST(TcpInterfaces, LoopbackBridgesContainersAndDownOnesAreLeftOut) {
  EXPECT_EQ(chosen(""), "eth1 10.0.1.7");
}

TEST(TcpInterfaces, NamesAndAddressesInTheirOrder) {
  EXPECT_EQ(chosen("ib0"), "ib0 10.1.0.7");
  EXPECT_EQ(chosen("eth9,ib0,eth1"), "ib0 10.1.0.7");
  EXPECT_EQ(chosen("eth0,eth1"), "eth1 10.0.1.7");  // the first is down
  EXPECT_EQ(chosen("2001:db8::7"), "eth1 2001:db8::7");
  EXPECT_EQ(chosen("docker0"), "docker0 172.17.0.1");  // who names it gets it
}

TEST(TcpInterfaces, WhatIsNotThereIsRefusedWithWhatIs) {
  EXPECT_THAT(chosen("eth0"), tells("'eth0'", "up"));
  EXPECT_THAT(chosen("wlan0"), tells("'wlan0'", "eth0 10.0.0.7 (down)", "eth1 10.0.1.7"));
}

TEST(TcpInterfaces, NoneIsNoError) {
  const auto interface = choose_interface(std::span(kSeen).first(3), "");
  ASSERT_TRUE(interface.has_value());
  EXPECT_EQ(interface.value().address, "");
}

int option_of(const rendezvous::Fd& fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(getsockopt(fd.get(), level, name, &value, &size), 0);
  return value;
}

TEST(TcpSockets, IdleOnesAreKeptKnownAndUnansweredOnesEnd) {
  const rendezvous::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
  prepare_bulk(fd.get(), true, "");
  EXPECT_EQ(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE), 60);
  EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL), 20);
  EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_KEEPCNT), 6);
  EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  prepare_control(fd.get(), std::chrono::seconds(3));
  EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 3000);
}

}  // namespace
}  // namespace gradwire::tcp::tcp_interfaces_test
