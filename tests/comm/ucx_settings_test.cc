// What gradwire tells UCX, and what UCX makes of it. UCX answers Success to keys that it does not
// know, so every setting is looked for where it acts: in UCX's printed configuration, in the
// options of its sockets, in the transport it took. Each look is in a process of its own.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "comm/ucx/lanes.h"
#include "comm/ucx/settings.h"
#include "comm/ucx/ucx_transport.h"
#include "comm/ucx/worker.h"

namespace gradwire::ucx_settings_test {
namespace {

using Variables = std::map<std::string, std::string>;

// Runs `look` in a new process with these environment variables; its text is a failure.
void in_process(const Variables& variables, const std::function<std::string()>& look) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    alarm(60);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    const std::string text = look();
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(text, "");
  EXPECT_EQ(status, 0);
}

// One message to or from the other rank of two; "" when it has gone.
std::string move(Transport& transport, Transfer::Kind kind, std::uint64_t number, ByteSpan data) {
  const Transfer transfer{kind, 1 - transport.rank(), Tag::make(1, number, 0).value(), data, {}};
  const auto ticket = transport.post(std::span(&transfer, 1));
  if (!ticket.has_value()) return std::string(ticket.error().message());
  const Deadline until = deadline_in(20);
  while (std::chrono::steady_clock::now() < until) {
    if (const auto outcome = transport.poll(ticket.value()))
      return outcome->ok() ? std::string() : std::string(outcome->message());
    (void)transport.wait(deadline_in(0.05));
  }
  return "message " + std::to_string(number) + " waits for its partner";
}

// Both ends of a two-rank job; `look` runs on each once they are connected. Neither leaves before
// the other has looked.
// `look` also gets the warnings so far.
using Look = std::function<std::string(Transport&, const std::string& warnings)>;
void in_job(const Variables& variables, const Look& look) {
  std::string directory = (std::filesystem::temp_directory_path() / "gw-set-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const auto play = [&](int rank) -> std::string {
    auto store = make_file_store(directory);
    if (!store.has_value()) return std::string(store.error().message());
    UcxOptions options;
    options.single_copy_bytes = SIZE_MAX;
    std::string warnings;
    options.log =
        Log(LogLevel::kWarn, [&warnings](LogLevel, std::string_view line) { warnings += line; });
    auto transport =
        make_ucx_transport({.rank = rank, .size = 2, .job = "t", .store = store.value()}, options);
    if (!transport.has_value()) return std::string(transport.error().message());
    std::string text = look(*transport.value(), warnings);
    std::byte seen{};
    for (const int sender : {0, 1}) {
      const auto kind = sender == rank ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
      text += move(*transport.value(), kind, 1000, std::span(&seen, 1));
    }
    return text;
  };
  const pid_t other = fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    alarm(60);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    const std::string text = play(1);
    if (!text.empty()) std::fprintf(stderr, "rank 1: %s\n", text.c_str());
    _exit(text.empty() ? 0 : 1);
  }
  in_process(variables, [&] { return play(0); });
  int status = 0;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  std::filesystem::remove_all(directory);
}

const ucx::Setting* find(const std::vector<ucx::Setting>& list, const std::string& variable) {
  const auto found = std::ranges::find(list, variable, &ucx::Setting::variable);
  return found == list.end() ? nullptr : &*found;
}

// "" if `variable` has this value from this source.
std::string expect(const std::vector<ucx::Setting>& list, const std::string& variable,
                   const std::string& value, ucx::Setting::Source source) {
  const ucx::Setting* setting = find(list, variable);
  if (setting == nullptr) return variable + " is not there";
  if (setting->value == value && setting->source == source) return "";
  return variable + "=" + setting->value + " (" + std::string(to_string(setting->source)) + ")";
}

// The values of an option over all connected TCP sockets of this process.
std::set<int> over_sockets(int option) {
  std::set<int> values;
  for (int fd = 3; fd < 256; ++fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) continue;
    int value = -1;
    size = sizeof value;
    if (getsockopt(fd, IPPROTO_TCP, option, &value, &size) == 0) values.insert(value);
  }
  return values;
}

bool on_some_socket(int option, const std::set<int>& wanted) {
  const std::set<int> seen = over_sockets(option);
  return std::ranges::any_of(wanted, [&](int value) { return seen.contains(value); });
}

// Asks both ranks again and again; "" once `here` holds on one of them. UCX sets the options of a
// socket on the end that opened it, when it first looks after it: a second or so after the start.
std::string await_on_one(Transport& transport, const std::function<bool()>& here) {
  for (std::uint64_t round = 0; round < 60; ++round) {
    const Deadline until = deadline_in(0.3);
    while (std::chrono::steady_clock::now() < until) (void)transport.wait(until);
    auto mine = static_cast<std::byte>(here() ? 1 : 0);
    std::byte theirs{};
    for (const int sender : {0, 1}) {
      const bool send = sender == transport.rank();
      const std::string fault =
          move(transport, send ? Transfer::Kind::kSend : Transfer::Kind::kRecv, round,
               std::span(send ? &mine : &theirs, 1));
      if (!fault.empty()) return fault;
    }
    if (mine != std::byte{0} || theirs != std::byte{0}) return "";
  }
  return "on neither rank";
}

void in_job(const Variables& variables, const std::function<std::string(Transport&)>& look) {
  in_job(variables,
         Look([&](Transport& transport, const std::string&) { return look(transport); }));
}

const Variables kTcp = {{"UCX_TLS", "tcp"}};

bool is_old() { return ucx::library_version().starts_with("1.13."); }

TEST(UcxSettings, ValuesAreReadBackFromUcx) {
  in_process({}, [] {
    const auto settings = ucx::read_settings();
    if (!settings.has_value()) return std::string(settings.error().message());
    std::string faults;
    using Source = ucx::Setting::Source;
    const auto& list = settings.value().list;
    const bool rdma = find(list, "UCX_RNDV_THRESH")->source == Source::kNotWanted;
    faults += expect(list, "UCX_KEEPALIVE_INTERVAL", "1s", Source::kGradwire);
    if (!rdma) faults += expect(list, "UCX_RNDV_THRESH", "inf", Source::kGradwire);
    if (!rdma) faults += expect(list, "UCX_ZCOPY_THRESH", "0", Source::kGradwire);
    faults +=
        expect(list, "UCX_TCP_USER_TIMEOUT", "4s", is_old() ? Source::kUnknown : Source::kGradwire);
    return faults;
  });
}

TEST(UcxSettings, WhatTheUserHasSetStays) {
  in_process({{"UCX_KEEPALIVE_INTERVAL", "7s"},
              {"UCX_SYSV_ERROR_HANDLING", "n"},
              {"UCX_NET_DEVICES", "lo"}},
             [] {
               const auto settings = ucx::read_settings({.interfaces = "eth99"});
               if (!settings.has_value()) return std::string(settings.error().message());
               using Source = ucx::Setting::Source;
               return expect(settings.value().list, "UCX_KEEPALIVE_INTERVAL", "7s", Source::kUser) +
                      expect(settings.value().list, "UCX_MM_ERROR_HANDLING", "n", Source::kUser);
             });
}

// UCX complains of keys whose transport it does not open.
TEST(UcxSettings, TransportsThatAreLeftOutAreToldNothing) {
  using Source = ucx::Setting::Source;
  const auto check = [](const std::string& tls, Source shared, Source tcp) {
    in_process({{"UCX_TLS", tls}}, [=] {
      const auto settings = ucx::read_settings();
      if (!settings.has_value()) return std::string(settings.error().message());
      return expect(settings.value().list, "UCX_MM_ERROR_HANDLING", "y", shared) +
             expect(settings.value().list, "UCX_TCP_KEEPCNT", "3", tcp);
    });
  };
  check("tcp", Source::kNotWanted, Source::kGradwire);
  check("sm,self", Source::kGradwire, Source::kNotWanted);
  check("tcp,\\sysv", Source::kGradwire, Source::kGradwire);
  check("^tcp", Source::kGradwire, Source::kNotWanted);
}

TEST(UcxSettings, AnInterfaceThatIsNotThereIsAnError) {
  in_process({}, [] {
    const auto worker = ucx::Worker::make({.interfaces = "eth99"});
    if (worker.has_value()) return std::string("no error");
    const std::string text(worker.error().message());
    const bool good = text.starts_with("network interface 'eth99' is not there (usable here: ");
    return good ? std::string() : text;
  });
}

TEST(UcxSettings, AnInterfaceThatIsAskedForIsTheOnlyOne) {
  in_process({}, [] {
    const auto settings = ucx::read_settings({.interfaces = "lo"});
    if (!settings.has_value()) return std::string(settings.error().message());
    return expect(settings.value().list, "UCX_NET_DEVICES", "lo", ucx::Setting::Source::kGradwire);
  });
}

TEST(UcxSettings, KeepAliveOfTcpSockets) {
  in_job(kTcp, [](Transport& transport) {
    return await_on_one(transport, [] {
      return on_some_socket(TCP_KEEPIDLE, {1, 2}) &&  // UCX rounds seconds down
             on_some_socket(TCP_KEEPINTVL, {1}) && on_some_socket(TCP_KEEPCNT, {3});
    });
  });
}

TEST(UcxSettings, UserTimeoutOfTcpSocketsWhereUcxKnowsIt) {
  // The kernel keeps ticks: of 4000 ms it may tell 3999.
  const std::set<int> wanted = is_old() ? std::set<int>{0} : std::set<int>{3996, 3999, 4000};
  in_job(kTcp, [&](Transport& transport) {
    return await_on_one(transport, [&] { return on_some_socket(TCP_USER_TIMEOUT, wanted); });
  });
}

TEST(UcxSettings, SharedMemoryStaysUnderPeerErrorHandling) {
  in_job({}, [](Transport& transport) {
    const std::string text = transport.describe();
    const bool shared =
        text.find("; sysv") != std::string::npos || text.find("; posix") != std::string::npos;
    return shared && text.find("tcp") == std::string::npos ? std::string() : text;
  });
}

// The trap itself: if this fails one day, UCX has mended it, and the setting can go.
TEST(UcxSettings, WithoutTheSettingUcxTakesTcpOnOneHost) {
  in_job({{"UCX_MM_ERROR_HANDLING", "n"}, {"UCX_SYSV_ERROR_HANDLING", "n"}},
         [](Transport& transport) {
           const std::string text = transport.describe();
           return text.find("; tcp/") != std::string::npos ? std::string() : text;
         });
}

// Shared memory that is wanted and not to be had: whoever looks for the reason finds it in the log.
TEST(UcxSettings, ADetourOnOneHostIsWarnedOf) {
  in_job({{"UCX_SHM_DEVICES", "none"}}, Look([](Transport&, const std::string& warnings) {
           const bool said =
               warnings.find("is on this host, but reached over tcp/") != std::string::npos;
           return said ? std::string() : "warnings: " + warnings;
         }));
}

TEST(UcxSettings, NoDetourNoWarning) {
  in_job({}, Look([](Transport&, const std::string& warnings) { return warnings; }));
  in_job(kTcp, Look([](Transport&, const std::string& warnings) { return warnings; }));
}

// A large message that is within its sender's window (comm/flow_window.h) ends before there is a
// receive for it only if it is no rendezvous.
TEST(UcxSettings, BulkOverTcpIsEager) {
  in_job(kTcp, [](Transport& transport) {
    std::vector<std::byte> bulk(4 << 20);
    std::byte over{};
    const std::span last(&over, 1);
    if (transport.rank() == 0) {
      const std::string sent = move(transport, Transfer::Kind::kSend, 1, bulk);
      return sent.empty() ? move(transport, Transfer::Kind::kSend, 2, last) : sent;
    }
    const std::string ended = move(transport, Transfer::Kind::kRecv, 2, last);
    return ended.empty() ? move(transport, Transfer::Kind::kRecv, 1, bulk) : ended;
  });
}

TEST(UcxSettings, SignalsAreLeftAlone) {
  in_job({}, [](Transport&) {
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
      struct sigaction action {};
      if (sigaction(number, nullptr, &action) != 0) return std::string("sigaction");
      if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
      // A sanitizer's own handler is no fault of UCX's.
      Dl_info where{};
      const bool known = dladdr(reinterpret_cast<void*>(action.sa_handler), &where) != 0;
      if (!known || std::string(where.dli_fname).find("libuc") != std::string::npos)
        return "signal " + std::to_string(number) + " is UCX's";
    }
    return std::string();
  });
}

// Output is the program's: UCX complains on it of settings and signals that it does not have.
TEST(UcxSettings, UcxHasNothingToSay) {
  in_process({}, [] {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) != 0) return std::string("pipe");
    const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    for (int life = 0; life < 2; ++life) {
      ucx::release_signals();
      (void)ucx::Worker::make();
    }
    std::fflush(nullptr);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    std::string said(4096, ' ');
    const ssize_t got = read(ends[0], said.data(), said.size());
    return said.substr(0, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  });
}

// Whoever can write into a store without seals, and does not know the secret.
TEST(UcxAddresses, AForgedAddressIsRefused) {
  in_process({}, [] {
    Rendezvous rendezvous{.rank = 0, .size = 2, .job = "t", .store = make_inproc_store()};
    rendezvous.secret = "a secret";
    const std::string forged = std::string(32, '\0') + "gw-ucx-7 0 1 space 1\n2 3 4\naddress";
    const auto bytes = std::as_bytes(std::span(forged.data(), forged.size()));
    if (!rendezvous.store->set("ucx/1", bytes, deadline_in(1)).ok()) return std::string("set");
    const auto transport = make_ucx_transport(rendezvous);
    if (transport.has_value()) return std::string("it was taken");
    const std::string text(transport.error().message());
    const bool good = text == "ucx: the address of rank 1 was not written with this rank's secret";
    return good ? std::string() : text;
  });
}

TEST(UcxLanes, TcpWhenAskedFor) {
  in_job(kTcp, [](Transport& transport) {
    const std::string text = transport.describe();
    return text.find("; tcp/") != std::string::npos ? std::string() : text;
  });
}

TEST(UcxLanes, LanesFromTheTextOfOldVersions) {
  const auto shared = ucx::lanes_in(
      "#\n#   peer: x\n"
      "#   lane[0]:  3:sysv/memory.0 md[2]  -> md[2]/sysv/sysdev[255] am\n"
      "#   lane[1]:  5:cma/memory.0 md[4]  -> md[4]/cma/sysdev[255] rma_bw#0\n"
      "#   lane[2]:  3:sysv/memory.0 md[2]\n");
  EXPECT_EQ(ucx::text_of(shared), "sysv+cma");
  EXPECT_FALSE(ucx::network_only(shared));
  const auto wired = ucx::lanes_in(
      "#   lane[0]:  1:tcp/eth0.100.0 md[1]  -> md[1]/tcp/x am\n"
      "#   lane[1]:  2:tcp/eth1.0 md[1]  -> md[1]/tcp/x am_bw#1\n");
  EXPECT_EQ(ucx::text_of(wired), "tcp/eth0.100+tcp/eth1");
  EXPECT_TRUE(ucx::network_only(wired));
  EXPECT_EQ(ucx::text_of(ucx::lanes_in("nothing of the kind")), "?");
  EXPECT_EQ(ucx::text_of(ucx::lanes_in("lane[0]:")), "?");
}

}  // namespace
}  // namespace gradwire::ucx_settings_test
