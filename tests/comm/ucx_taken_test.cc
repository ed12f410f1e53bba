// What UCX took on this machine, and what it left alone: the effects of comm/ucx/settings.cc. Each
// test calls UCX in a forked process of its own.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "comm/ucx/lanes.h"
#include "comm/ucx/ucx_transport.h"

namespace gradwire {
namespace {

// Two ranks, each a process; `body` says whether all was as it should be.
void two_ranks(const std::function<bool(Transport&)>& body) {
  std::string directory = (std::filesystem::temp_directory_path() / "gw-ucx-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  pid_t ranks[2];
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank] = fork();
    ASSERT_GE(ranks[rank], 0);
    if (ranks[rank] != 0) continue;
    alarm(60);
    auto store = make_file_store(directory);
    if (!store.has_value()) _exit(2);
    auto transport =
        make_ucx_transport({.rank = rank, .size = 2, .job = "t", .store = store.value()});
    if (!transport.has_value()) _exit(3);
    _exit(body(*transport.value()) ? 0 : 1);
  }
  for (const pid_t pid : ranks) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
  }
  std::filesystem::remove_all(directory);
}

// TCP when it is asked for: the other half of what the laws run on.
TEST(UcxTaken, TcpWhenAskedFor) {
  setenv("UCX_TLS", "tcp", 1);
  two_ranks([](Transport& transport) {
    return transport.describe().find("; tcp to rank") != std::string::npos;
  });
  unsetenv("UCX_TLS");
}

// Peer error handling must not have cost us shared memory.
TEST(UcxTaken, SharedMemoryOnOneHost) {
  two_ranks([](Transport& transport) {
    const std::string text = transport.describe();
    std::fprintf(stderr, "%s\n", text.c_str());
    return (text.find("; sysv") != std::string::npos ||
            text.find("; posix") != std::string::npos) &&
           text.find("tcp") == std::string::npos;
  });
}

TEST(UcxTaken, SignalsAreLeftAlone) {
  two_ranks([](Transport&) {
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
      struct sigaction action {};
      if (sigaction(number, nullptr, &action) != 0) return false;
      if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
      // A sanitizer's own handler is no fault of UCX's.
      Dl_info where{};
      const bool known = dladdr(reinterpret_cast<void*>(action.sa_handler), &where) != 0;
      if (!known || std::string(where.dli_fname).find("libuc") != std::string::npos) return false;
    }
    return true;
  });
}

TEST(UcxTaken, LanesFromTheTextOfOldVersions) {
  EXPECT_EQ(ucx::lanes_in("#\n#   peer: x\n"
                          "#   lane[0]:  3:sysv/memory.0 md[2]  -> md[2]/sysv/sysdev[255] am\n"
                          "#   lane[1]:  5:cma/memory.0 md[4]  -> md[4]/cma/sysdev[255] rma_bw#0\n"
                          "#   lane[2]:  3:sysv/memory.0 md[2]\n"),
            "sysv+cma");
  EXPECT_EQ(ucx::lanes_in("nothing of the kind"), "?");
  EXPECT_EQ(ucx::lanes_in("lane[0]:"), "?");
}

}  // namespace
}  // namespace gradwire
