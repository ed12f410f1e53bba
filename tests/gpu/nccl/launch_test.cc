// NCCL as a transport of programs, played by a library of its name, among threads, on the devices
// that the host plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/launch/launch.h"
#include "base/elements.h"
#include "base/text.h"
#include "comm/ucx/ucx_transport.h"
#include "device/host_copy.h"
#include "gradwire/buffer.h"
#include "tests/comm/nccl/fake_nccl.h"
#include "tests/emulation/emulated_device.h"
#include "tests/gpu/nccl/nccl_threads.h"
#include "tests/gpu/program_runs.h"
#include "tests/support/names.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kLibrary = "libnccl.so.2";  // as nccl_places() says first

class NcclLaunch : public gpu::ProgramRuns {
 protected:
  NcclLaunch() : fake_(nccl_test::FakeNccl::open(kLibrary).value()) {
    emulation::play_devices(2);
    fake_.take_log();
    ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  }
  ~NcclLaunch() override {
    emulation::play_devices(1);
    ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  }

  std::string bench(const Words& more) const { return ProgramRuns::bench("2", more); }

  nccl_test::FakeNccl fake_;
};

using Connect = std::function<Result<std::unique_ptr<Communicator>>(const Rendezvous& met)>;

enum class On : std::uint8_t { kOwnStream, kDefaultStream };

// Adds up one number of each rank, on the device that the communicator has brought; its text.
Result<std::string> sum_there(Communicator& world, On on) {
  const std::string text = world.describe();
  const std::size_t at = text.find("CUDA device ");
  if (at == std::string::npos) return Status(Code::kInternal, "no device in " + text);
  const Device device{MemorySpace::kCuda, text[at + 12] - '0'};
  GW_ASSIGN(Buffer memory, Buffer::allocate(sizeof(float), device));
  const TensorView there = memory.tensor(Shape::vector(1), DType::kF32);
  float number = static_cast<float>(world.rank() + 1);
  GW_TRY(write_from_host(std::as_bytes(std::span(&number, 1)), there));
  const gpu::OwnStream own(device);
  const Stream stream = on == On::kOwnStream ? own.stream() : Stream{device, nullptr};
  GW_ASSIGN(Work work, world.all_reduce(there, ReduceOp::kSum, {.deadline = {}, .stream = stream}));
  GW_TRY(work.wait());
  GW_ASSIGN(const HostCopy sum, HostCopy::of(there));
  std::memcpy(&number, sum.bytes().data(), sizeof number);
  return format("%g on device %d: ", static_cast<double>(number), device.ordinal) + text;
}

std::vector<std::string> ranks_say(int ranks, const Connect& connect, On on = On::kOwnStream) {
  const auto store = make_inproc_store();
  return on_threads<std::string>(ranks, [&](int rank) -> std::string {
    auto world = connect({.rank = rank, .size = ranks, .store = store, .timeout_seconds = 30});
    if (!world.has_value()) return std::string(world.error().message());
    const auto text = sum_there(*world.value(), on);
    return text.has_value() ? text.value() : std::string(text.error().message());
  });
}

const EnvLookup kNothing = [](const std::string&) { return std::nullopt; };

// transports: of each rank.
Connect by_launch(const std::vector<std::string>& transports) {
  return [transports](const Rendezvous& met) {
    return launch::connect(met, transports[static_cast<std::size_t>(met.rank)], {}, kNothing,
                           Log());
  };
}

TEST_F(NcclLaunch, RanksOfAHostBringTheirDevicesInTurn) {
  const std::size_t refused = emulation::calls_on_a_wrong_device();
  const std::string over = std::string(" over ") + (kHaveUcx ? "ucx" : "tcp");
  const Connect by_library = [](const Rendezvous& met) { return make_communicator("nccl", met); };
  for (const Connect& connect : {by_launch({"nccl", "nccl", "nccl"}), by_library}) {
    EXPECT_THAT(ranks_say(3, connect),
                ElementsAre(AllOf(HasSubstr("6 on device 0: "), HasSubstr(over),
                                  HasSubstr("; CUDA device 0: NCCL 2.30.3 (libnccl.so.2)")),
                            HasSubstr("6 on device 1: "), HasSubstr("6 on device 0: ")));
    EXPECT_THAT(std::string(fake_.take_log()), HasSubstr("ncclAllReduce rank 1: count 1 "));
  }
  EXPECT_EQ(emulation::calls_on_a_wrong_device(), refused);
}

TEST_F(NcclLaunch, EachRankMayNameItsOwnDevice) {
  EXPECT_THAT(ranks_say(3, by_launch({"nccl:1", "nccl:0", "nccl"})),
              ElementsAre(HasSubstr("6 on device 1: "), HasSubstr("6 on device 0: "),
                          HasSubstr("6 on device 0: ")));
}

TEST_F(NcclLaunch, RanksWithADeviceEachMayTakeItsDefaultStream) {
  EXPECT_THAT(ranks_say(2, by_launch({"nccl:1", "nccl:0"}), On::kDefaultStream),
              ElementsAre(HasSubstr("3 on device 1: "), HasSubstr("3 on device 0: ")));
}

TEST_F(NcclLaunch, ARankWithoutItsDeviceSaysSoAndTheOthersWhoItIs) {
  const auto said = ranks_say(2, by_launch({"nccl", "nccl:2"}));
  EXPECT_THAT(said[0], tells("nccl", "rank 1"));
  EXPECT_THAT(said[1], tells("nccl", "CUDA device 2", "0 to 1"));
  emulation::play_devices(0);
  EXPECT_THAT(ranks_say(2, by_launch({"nccl", "nccl"})), Each(tells("cudaErrorNoDevice")));
}

TEST_F(NcclLaunch, MessagesBelowHaveTheJobsSettings) {
  const EnvLookup checked = [](const std::string& name) {
    return name == "GRADWIRE_CHECKSUM" ? std::optional<std::string>("1") : std::nullopt;
  };
  const auto said = ranks_say(2, [&](const Rendezvous& met) {
    return launch::connect(met, "nccl", {}, met.rank == 0 ? checked : kNothing, Log());
  });
  EXPECT_THAT(said, Each(tells("GRADWIRE_CHECKSUM")));
  EXPECT_THAT(ranks_say(2,
                        [&](const Rendezvous& met) {
                          return launch::connect(met, "nccl", {}, checked, Log());
                        }),
              Each(AllOf(HasSubstr("3 on device "), HasSubstr("checksum"))));
}

TEST_F(NcclLaunch, TrainRunsOverIt) {
  const Words brief{"--inproc", "3",  "--device", "cuda", "--steps", "4",
                    "--batch",  "24", "--hidden", "8",    "--seed",  "11"};
  const auto run = [&](const std::string& name, const Words& more) {
    Words words = brief;
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--save-params", file(name), "--metrics", file(name + ".jsonl")});
    return train(words);
  };
  const std::vector<std::pair<std::string, std::string>> exchanges{
      {"none", "ncclAllReduce"},
      {"qsgd:bits=8,min_elems=0", "ncclSend"},
      {"topk:ratio=0.1,ef=ef14,min_elems=0", "ncclAllGather"}};
  for (const auto& [compressor, call] : exchanges) {
    const std::size_t refused = emulation::calls_on_a_wrong_device();
    ASSERT_EQ(run("messages", {"--compressor", compressor}), "ok");
    EXPECT_EQ(std::string(fake_.take_log()), "");
    ASSERT_EQ(run("nccl", {"--compressor", compressor, "--transport", "nccl"}), "ok") << compressor;
    EXPECT_THAT(std::string(fake_.take_log()), HasSubstr(call + " rank 2: "));
    EXPECT_EQ(emulation::calls_on_a_wrong_device(), refused);
    EXPECT_LT(relative_distance(file("messages"), file("nccl")), 1e-4) << compressor;
    // What NCCL sent counts as sent.
    const auto lines = json_lines(file("nccl.jsonl"));
    ASSERT_FALSE(lines.empty());
    EXPECT_GT(lines.front()["bytes_sent"].get<std::int64_t>(),
              lines.front()["payload_bytes"].get<std::int64_t>() / 2);
  }
}

TEST_F(NcclLaunch, StagesTrainOverIt) {
  const auto run = [&](const std::string& name, const Words& more) {
    Words words{"--inproc",     "2",   "--device", "cuda", "--parallel",    "pp=2",
                "--accumulate", "4",   "--steps",  "4",    "--batch",       "24",
                "--hidden",     "8,8", "--seed",   "11",   "--save-params", file(name)};
    words.insert(words.end(), more.begin(), more.end());
    return train(words);
  };
  ASSERT_EQ(run("messages", {}), "ok");
  fake_.take_log();
  ASSERT_EQ(run("nccl", {"--transport", "nccl"}), "ok");
  EXPECT_THAT(std::string(fake_.take_log()),
              AllOf(HasSubstr("ncclSend rank 0: "), HasSubstr("ncclSend rank 1: ")));
  EXPECT_EQ(contents(file("messages")), contents(file("nccl")));
}

TEST_F(NcclLaunch, BenchRunsOverIt) {
  for (const char* const compressor : {"none", "qsgd:bits=4", "topk:ratio=0.1"}) {
    const Words words{"--device", "cuda", "--transport", "nccl", "--compressor", compressor};
    ASSERT_EQ(bench(words), "ok") << compressor;
    EXPECT_THAT(std::string(fake_.take_log()), HasSubstr("ncclAllReduce rank 1: "));
    const auto rows = json_lines(file("rows"));
    ASSERT_FALSE(rows.empty());
    for (const auto& row : rows) {
      EXPECT_EQ(row["wrong"], 0) << compressor;
      EXPECT_EQ(row["transport"], "nccl");
      EXPECT_EQ(row["buffers"], "cuda:0");
    }
  }
}

// Before: both ranks' operations on the device's default stream, one behind the other.
TEST_F(NcclLaunch, BenchOfRanksThatShareADeviceRunsOnStreamsOfTheirOwn) {
  for (const char* const compressor : {"none", "qsgd:bits=4"}) {
    ASSERT_EQ(bench({"--device", "cuda:0", "--transport", "nccl", "--compressor", compressor}),
              "ok");
    for (const auto& row : json_lines(file("rows"))) EXPECT_EQ(row["wrong"], 0) << compressor;
  }
}

// So does a training that begins with what rank 0 has read.
TEST_F(NcclLaunch, TrainOfRanksThatShareADeviceBeginsWithParametersOfAFile) {
  const Words brief{"--inproc", "2", "--device", "cuda:0", "--steps", "2", "--hidden", "8"};
  const auto run = [&](const Words& more) {
    Words words = brief;
    words.insert(words.end(), more.begin(), more.end());
    return train(words);
  };
  ASSERT_EQ(run({"--save-params", file("first")}), "ok");
  EXPECT_EQ(run({"--load-params", file("first"), "--transport", "nccl"}), "ok");
}

TEST_F(NcclLaunch, TwoDevicesForOneRankAreRefused) {
  const std::string said = "device cuda:1 with transport nccl:0 (expected nccl or nccl:1)";
  EXPECT_EQ(bench({"--device", "cuda:1", "--transport", "nccl:0"}), said);
  EXPECT_EQ(train({"--inproc", "2", "--device", "cuda:1", "--transport", "nccl:0"}), said);
  EXPECT_EQ(bench({"--device", "cuda", "--transport", "nccl:2"}),
            "device cuda: CUDA device 2 (expected 0 to 1: 2 are here)");
}

}  // namespace
}  // namespace gradwire
