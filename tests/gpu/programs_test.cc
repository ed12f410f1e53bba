// `gradwire train` and `gradwire bench` whose ranks have a device each, of those that the host
// plays: as threads, and as processes that a launcher has told who they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "apps/train/train.h"
#include "base/text.h"
#include "tests/emulation/emulated_device.h"
#include "tests/gpu/program_runs.h"
#include "tests/support/names.h"

namespace gradwire {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Programs : public gpu::ProgramRuns {
 protected:
  ~Programs() override { emulation::play_devices(1); }
};

// What a device has done since this was made.
class Work {
 public:
  explicit Work(int device) : device_(device) {}
  std::size_t launches() const { return emulation::launches_on(device_) - launches_; }
  std::size_t bytes() const { return emulation::bytes_given_by(device_) - bytes_; }

 private:
  int device_;
  std::size_t launches_ = emulation::launches_on(device_);
  std::size_t bytes_ = emulation::bytes_given_by(device_);
};

TEST_F(Programs, TrainGivesEachRankADeviceAndTheSameBits) {
  const Words words{"--inproc", "3", "--device", "cuda"};
  emulation::play_devices(1);
  ASSERT_EQ(train_briefly(words, "one"), "ok");
  emulation::play_devices(2);
  const Work first(0);
  const Work second(1);
  ASSERT_EQ(train_briefly(words, "two"), "ok");
  // Ranks 0 and 2, and rank 1.
  EXPECT_GT(second.launches(), 0u);
  EXPECT_GT(first.launches(), second.launches());
  EXPECT_LT(first.launches(), 3 * second.launches());
  EXPECT_GT(first.bytes(), second.bytes());
  EXPECT_EQ(contents(file("one")), contents(file("two")));
}

class ProgramsCompressing : public Programs, public testing::WithParamInterface<const char*> {};

TEST_P(ProgramsCompressing, EveryMethodWorksOnTheDeviceOfItsRank) {
  const std::string spec = GetParam();
  const char* const next = spec.find(':') == std::string::npos ? ":" : ",";
  const Words words{
      "--inproc", "3", "--device", "cuda", "--compressor", spec + next + "min_elems=0"};
  emulation::play_devices(1);
  ASSERT_EQ(train_briefly(words, "one"), "ok");
  emulation::play_devices(3);
  const std::size_t refused = emulation::calls_on_a_wrong_device();
  ASSERT_EQ(train_briefly(words, "three"), "ok");
  EXPECT_EQ(emulation::calls_on_a_wrong_device(), refused);
  EXPECT_EQ(contents(file("one")), contents(file("three")));
}

INSTANTIATE_TEST_SUITE_P(
    Methods, ProgramsCompressing,
    testing::Values("none:ef=none", "cast:bf16", "cast:fp16,ef=ef14", "fp8:e4m3", "mx:e4m3,ef=ef14",
                    "natural", "topk:ratio=0.1,ef=ef14", "topk:ratio=0.1,ef=ef21",
                    "threshold:0.001,ef=ef14", "dgc:ratio=0.1", "cltk:ratio=0.1,ef=ef14",
                    "block_sparse", "randomk:ratio=0.1,ef=ef14", "qsgd:bits=4",
                    "qsgd:bits=4,combine=gather", "minmax:bits=4,transform=hadamard",
                    "absmax:bits=4,spikes=1,ef=loco", "signsgd:ef=ef14", "signsgd:vote=majority",
                    "signum", "onebit:ef=ef14", "terngrad", "global_qsgd", "thc", "lossless",
                    "powersgd:rank=2,ef=ef14", "acpsgd:rank=2,ef=ef14", "atomo:budget=2"),
    [](const auto& info) {
      std::string name = std::to_string(info.index) + "_";
      for (const char c : std::string(info.param)) name += std::isalnum(c) != 0 ? c : '_';
      return name;
    });

TEST_F(Programs, ADeviceThatIsNamedIsEveryRanks) {
  emulation::play_devices(2);
  const Work first(0);
  const Work second(1);
  emulation::forget_contexts();
  ASSERT_EQ(train_briefly({"--inproc", "2", "--device", "cuda:1", "--compressor", "qsgd:bits=4"},
                          "named"),
            "ok");
  EXPECT_FALSE(emulation::has_context_on(0));
  EXPECT_EQ(first.launches(), 0u);
  EXPECT_EQ(first.bytes(), 0u);
  EXPECT_GT(second.launches(), 0u);
}

TEST_F(Programs, TheHeadingSaysWhichDeviceRankZeroTook) {
  emulation::play_devices(2);
  testing::internal::CaptureStdout();
  const auto outcome = train_command({"--inproc", "2", "--device", "cuda:1", "--steps", "1"});
  const std::string said = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message();
  EXPECT_THAT(said, tells("2 ranks", "cuda:1"));
}

TEST_F(Programs, TheLogSaysWhichDeviceEachRankTook) {
  emulation::play_devices(2);
  testing::internal::CaptureStderr();
  ASSERT_EQ(train_briefly({"--inproc", "2", "--device", "cuda", "--log-level", "info"}, "logged"),
            "ok");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("rank 0: uses cuda:0"), HasSubstr("rank 1: uses cuda:1")));
}

TEST_F(Programs, WhatIsNotThereIsRefusedByName) {
  emulation::play_devices(2);
  EXPECT_THAT(train_briefly({"--inproc", "2", "--device", "cuda:2"}, "none"),
              tells("CUDA device 2", "0 to 1"));
  EXPECT_THAT(bench("2", {"--device", "cuda:2"}), tells("CUDA device 2", "0 to 1"));
  EXPECT_THAT(train({"--inproc", "2", "--transport", "tcp"}), tells("--transport tcp", "--inproc"));
  EXPECT_THAT(train({"--transport", "pigeon"}), tells("transport 'pigeon'"));
  emulation::play_devices(0);
  EXPECT_THAT(train_briefly({"--device", "cuda"}, "none"), tells("cudaErrorNoDevice"));
  EXPECT_THAT(bench("1", {"--device", "cuda"}), tells("cudaErrorNoDevice"));
}

TEST_F(Programs, BenchGivesEachRankADevice) {
  for (const char* const compressor : {"none", "qsgd:bits=4"}) {
    emulation::play_devices(2);
    const std::size_t refused = emulation::calls_on_a_wrong_device();
    const Work second(1);
    testing::internal::CaptureStdout();
    EXPECT_EQ(bench("2", {"--device", "cuda", "--compressor", compressor}), "ok");
    EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("cuda:0 buffers"));
    EXPECT_GT(second.bytes(), 0u);
    EXPECT_EQ(emulation::calls_on_a_wrong_device(), refused) << compressor;
    for (const auto& row : json_lines(file("rows"))) EXPECT_EQ(row["wrong"], 0);
  }
}

// A rank as a launcher starts it, which says in the end whether each of two devices gave memory.
[[noreturn]] void play_process(int rank, int local_rank, const std::string& meet, int said) {
  setenv("GRADWIRE_RANK", std::to_string(rank).c_str(), 1);
  setenv("GRADWIRE_WORLD_SIZE", "2", 1);
  setenv("GRADWIRE_LOCAL_RANK", std::to_string(local_rank).c_str(), 1);
  setenv("GRADWIRE_RENDEZVOUS", ("file://" + meet).c_str(), 1);
  emulation::play_devices(2);
  const Work first(0);
  const Work second(1);
  const auto outcome =
      bench_command({"all_reduce", "--device", "cuda", "--transport", "tcp", "--min", "1K", "--max",
                     "1K", "--seconds", "0.01", "--log-level", "error"});
  const std::string text =
      outcome.has_value() ? format("%d %d", first.bytes() > 0 ? 1 : 0, second.bytes() > 0 ? 1 : 0)
                          : std::string(outcome.error().message());
  const bool wrote = write(said, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  std::fflush(nullptr);
  _exit(wrote ? 0 : 1);
}

// What both say whose local ranks these are.
std::array<std::string, 2> processes_say(const std::array<int, 2>& local_ranks,
                                         const std::string& meet) {
  std::array<std::string, 2> said;
  std::array<pid_t, 2> children{};
  std::array<std::array<int, 2>, 2> pipes{};
  std::fflush(nullptr);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(pipe(pipes[r].data()), 0);
    children[r] = fork();
    if (children[r] == 0) play_process(static_cast<int>(r), local_ranks[r], meet, pipes[r][1]);
    close(pipes[r][1]);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (std::size_t r = 0; r < 2; ++r) {
    int status = 0;
    while (waitpid(children[r], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > until) kill(children[r], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(status, 0) << "process " << r;
    std::array<char, 512> text{};
    const ssize_t bytes = read(pipes[r][0], text.data(), text.size());
    said[r] = bytes > 0 ? std::string(text.data(), static_cast<std::size_t>(bytes)) : "nothing";
    close(pipes[r][0]);
  }
  return said;
}

TEST_F(Programs, AProcessTakesTheDeviceOfItsLocalRank) {
  EXPECT_THAT(processes_say({0, 1}, file("a")), testing::ElementsAre("1 0", "0 1"));
  EXPECT_THAT(processes_say({1, 0}, file("b")), testing::ElementsAre("0 1", "1 0"));
  EXPECT_THAT(processes_say({1, 1}, file("c")), testing::Each("0 1"));
}

}  // namespace
}  // namespace gradwire
