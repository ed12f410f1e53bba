#include "apps/sim/sim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/inspect/inspect.h"
#include "apps/sim/sim_text.h"
#include "apps/whole_file.h"
#include "collectives/schedules/selection.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::sim_test {
namespace {

using ::testing::HasSubstr;

constexpr Code kInvalid = Code::kInvalidArgument;
std::string printed(std::vector<std::string> words) {
  words.emplace_back("--quiet");
  ::testing::internal::CaptureStdout();
  const auto outcome = sim_command(words);
  std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message();
  return text;
}

Status refusal(const std::vector<std::string>& words) {
  ::testing::internal::CaptureStdout();
  const auto outcome = sim_command(words);
  (void)::testing::internal::GetCapturedStdout();
  return outcome.has_value() ? Status() : outcome.error();
}

// By algorithm.
std::map<std::string, nlohmann::json> rows(std::vector<std::string> words) {
  const TemporaryFolder folder;
  words.insert(words.end(), {"--json", folder.path() + "/rows"});
  (void)printed(words);
  const auto text = read_whole_file(folder.path() + "/rows");
  EXPECT_TRUE(text.has_value());
  std::map<std::string, nlohmann::json> found;
  std::istringstream lines(text.has_value() ? text.value() : "");
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    EXPECT_TRUE(row.is_object()) << line;
    found[row["algorithm"]] = row;
  }
  return found;
}

TEST(Sim, RowsAreTheClosedForms) {
  const auto found = rows({"all_reduce", "--ranks", "8", "--bytes", "8M", "--alpha", "1e-5",
                           "--beta", "1e-9", "--gamma", "1e-10"});
  const auto& ring = found.at("ring");
  // 14 alpha + 14/8 m beta + 7/8 m gamma
  EXPECT_DOUBLE_EQ(ring["seconds"], 14e-5 + 14.0 / 8 * 8388608 * 1e-9 + 7.0 / 8 * 8388608 * 1e-10);
  EXPECT_EQ(ring["op"], "all_reduce");
  EXPECT_EQ(ring["ranks"], 8);
  EXPECT_EQ(ring["nodes"], 8);
  EXPECT_EQ(ring["bytes"], 8388608);
  EXPECT_EQ(ring["wire_bytes_max"], 14 * 1048576);
  EXPECT_DOUBLE_EQ(ring["bound_seconds"], 14.0 / 8 * 8388608 * 1e-9);
  // Two bursts of one chunk to everybody, which share their start-ups.
  EXPECT_DOUBLE_EQ(found.at("canonical")["seconds"],
                   2e-5 + 14.0 / 8 * 8388608 * 1e-9 + 7.0 / 8 * 8388608 * 1e-10);
  int chosen = 0;
  double least = 1e9;
  for (const auto& [name, row] : found) {
    EXPECT_GE(row["seconds"], row["bound_seconds"]) << name;
    least = std::min(least, row["seconds"].get<double>());
    chosen += row["chosen"].get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(chosen, 1);
  for (const auto& [name, row] : found) {
    if (row["chosen"]) {
      EXPECT_LE(row["seconds"], 1.05 * least) << name;
    }
  }
}

TEST(Sim, EveryOperationHasItsAlgorithms) {
  for (const OpKind collective :
       {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kAllToAll,
        OpKind::kBroadcast, OpKind::kReduce, OpKind::kGather, OpKind::kScatter,
        OpKind::kExclusiveScan, OpKind::kBarrier, OpKind::kSend}) {
    const std::string operation(schedule_name(collective));
    const auto found = rows({operation, "--ranks", "6", "--nodes", "2", "--bytes", "1000",
                             "--alpha-intra", "1e-6", "--beta-intra", "1e-10"});
    EXPECT_EQ(found.size(), algorithms_of(collective).size()) << operation;
    for (const auto& [name, row] : found) {
      EXPECT_GT(row["seconds"], 0) << operation << " " << name;
      EXPECT_GE(row["seconds"], row["bound_seconds"]) << operation << " " << name;
      EXPECT_EQ(row["nodes"], 2);
    }
  }
}

// Every rank sends to the next at once: one message's time, whatever the ranks.
TEST(Sim, SendRecvIsOneMessage) {
  const auto found =
      rows({"send_recv", "--ranks", "12", "--bytes", "1M", "--alpha", "1e-5", "--beta", "1e-9"});
  ASSERT_EQ(found.size(), 1U);
  const auto& direct = found.at("direct");
  EXPECT_EQ(direct["op"], "send_recv");
  EXPECT_DOUBLE_EQ(direct["seconds"], 1e-5 + 1048576 * 1e-9);
  EXPECT_DOUBLE_EQ(direct["bound_seconds"], 1048576 * 1e-9);
  EXPECT_EQ(direct["wire_bytes_max"], 1048576);
  EXPECT_TRUE(direct["chosen"].get<bool>());
}

TEST(Sim, InsideNodesTheNumbersAreThoseBetweenUnlessGiven) {
  const std::vector<std::string> words{"all_reduce", "--ranks", "8",    "--nodes", "2",   "--bytes",
                                       "64K",        "--alpha", "2e-5", "--beta",  "1e-9"};
  std::vector<std::string> flat = words;
  flat[4] = "8";
  EXPECT_EQ(rows(words).at("ring")["seconds"], rows(flat).at("ring")["seconds"]);
}

TEST(Sim, CompressorsAddTheirExchanges) {
  const auto found = rows({"all_reduce", "--ranks", "64", "--bytes", "100000000", "--beta",
                           "0.8e-9", "--compressor", "qsgd:bits=8"});
  double dense = 1e9;
  double two_hop = 0;
  for (const auto& [name, row] : found) {
    if (row["chosen"]) dense = row["seconds"];
    if (name.find("two-hop") != std::string::npos) two_hop = row["seconds"];
  }
  EXPECT_GT(two_hop, 0);
  EXPECT_GT(dense / two_hop, 3.5);
  EXPECT_THAT(refusal({"broadcast", "--compressor", "topk:ratio=0.01"}),
              fails(kInvalid, "--compressor", "broadcast", "all_reduce"));
  EXPECT_THAT(refusal({"all_reduce", "--quiet", "--compressor", "nonesuch"}),
              fails(kInvalid, "nonesuch"));
}

// 700 ranks on 9 unlike nodes: canonical has more steps than are simulated, trees have few.
TEST(Sim, TooManyStepsLeaveTheClosedForm) {
  const std::vector<std::string> words{"all_reduce", "--ranks", "700",    "--nodes", "9",
                                       "--bytes",    "64M",     "--beta", "1e-9"};
  const auto found = rows(words);
  const auto& canonical = found.at("canonical");
  EXPECT_FALSE(canonical["simulated"].get<bool>());
  EXPECT_EQ(canonical["simulated_ranks"], 0);
  EXPECT_GT(canonical["seconds"], canonical["bound_seconds"]);
  EXPECT_EQ(canonical["seconds"], canonical["formula_seconds"]);
  EXPECT_EQ(canonical["rounds"], 2);
  EXPECT_EQ(found.size(), algorithms_of(OpKind::kAllReduce).size());  // none is left out
  EXPECT_TRUE(found.at("tree")["simulated"].get<bool>());
  EXPECT_EQ(found.at("tree")["simulated_ranks"], 700);
}

TEST(Sim, ThePageHoldsTableChartAndCommand) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/page.html";
  const std::string text = printed({"all_reduce", "--ranks", "8", "--html", file});
  EXPECT_THAT(text, HasSubstr("all_reduce of 1 MiB, 8 ranks on 8 nodes"));
  EXPECT_THAT(text, HasSubstr("Choice of auto, by size"));
  const auto page = read_whole_file(file);
  ASSERT_TRUE(page.has_value());
  EXPECT_THAT(page.value(), HasSubstr("<th>ring</th>"));
  EXPECT_THAT(page.value(), HasSubstr("gradwire sim all_reduce --ranks 8"));
  EXPECT_THAT(page.value(), HasSubstr("new Chart("));
  EXPECT_EQ(page.value().find("@@"), std::string::npos);
  EXPECT_EQ(page.value().find("src=\"http"), std::string::npos);
}

TEST(Sim, BadWordsSayWhatIsWanted) {
  EXPECT_THAT(refusal({"gossip"}), fails(kInvalid, "operation", "gossip", "all_reduce"));
  EXPECT_THAT(refusal({"all_reduce", "--ranks", "4", "--nodes", "8"}),
              fails(kInvalid, "nodes", "ranks", "8", "4"));
  EXPECT_THAT(refusal({"all_reduce", "--gap", "2"}), fails(kInvalid, "--gap"));
}

TEST(SimText, TimesAndSizesAreShort) {
  EXPECT_EQ(time_text(1.5e-6), "1.5 us");
  EXPECT_EQ(time_text(0.0123456), "12.35 ms");
  EXPECT_EQ(time_text(2), "2 s");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(std::int64_t{1} << 30), "1 GiB");
}

// By schedule.
std::map<std::string, nlohmann::json> pipelines(const std::vector<std::string>& words) {
  ::testing::internal::CaptureStdout();
  const auto outcome = sim_command(words);
  std::istringstream lines(::testing::internal::GetCapturedStdout());
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message();
  std::map<std::string, nlohmann::json> found;
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    EXPECT_TRUE(row.is_object()) << line;
    found[row["schedule"]] = row;
  }
  return found;
}

TEST(SimPipeline, RowsAreTheClosedForms) {
  for (const char* links : {"direct", "tagged", "ordered"}) {
    const auto found = pipelines({"pipeline", "--ranks", "4", "--micro-batches", "8", "--forward",
                                  "5", "--backward-input", "6", "--backward-weight", "4",
                                  "--message-bytes", "10", "--links", links, "--json", "-"});
    ASSERT_EQ(found.size(), 8U);
    // Layers of a rank take 15 ticks a micro-batch however many stages they are cut into.
    EXPECT_EQ(found.at("gpipe")["makespan"], 11 * 15);
    EXPECT_EQ(found.at("1f1b")["makespan"], 11 * 15);
    EXPECT_EQ(found.at("gpipe")["contexts_max"], 8);
    EXPECT_EQ(found.at("1f1b")["contexts_max"], 4);
    EXPECT_EQ(found.at("interleaved")["contexts_max"], 11);
    EXPECT_EQ(found.at("1f1b")["message_bytes"], 2 * 3 * 8 * 10);
    EXPECT_EQ(found.at("interleaved")["message_bytes"], 2 * 7 * 8 * 10);
    EXPECT_EQ(found.at("1f1b")["bubble_of_busy"], 3.0 / 8);
    // The order of messages is made for backwards twice as long as forwards.
    if (links != std::string("ordered")) {
      EXPECT_EQ(found.at("zb-h1")["makespan"], 8 * 15 + 3 * (5 + 6 - 4));
      EXPECT_EQ(found.at("interleaved")["makespan"], 8 * 15 + 3 * 15 / 2.0);
    }
  }
}

// Three quarters of the layers on rank 0: 6 and 12 ticks a micro-batch there, 2 and 4 on rank 1.
TEST(SimPipeline, StagesByHandHaveTheirShareOfTheLayers) {
  const std::string name = "gpipe[stages=3+1]";
  const auto found = pipelines({"pipeline", "--schedules", name + ";gpipe", "--ranks", "2",
                                "--micro-batches", "4", "--forward", "4", "--backward-input", "4",
                                "--backward-weight", "4", "--context-bytes", "100", "--json", "-"});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found.at(name)["makespan"], 4 * 6 + 2 + 4 + 4 * 12);
  EXPECT_EQ(found.at(name)["memory_bytes_max"], 4 * 150);
  EXPECT_EQ(found.at("gpipe")["makespan"], 5 * 12);
}

TEST(SimPipeline, MemoryIsThatOfContextsAndMessages) {
  const auto found = pipelines({"pipeline", "--ranks", "4", "--micro-batches", "8",
                                "--context-bytes", "100", "--json", "-"});
  EXPECT_EQ(found.at("gpipe")["memory_bytes_max"], 800);
  EXPECT_EQ(found.at("1f1b")["memory_bytes_max"], 400);
  EXPECT_EQ(found.at("zb-h1")["memory_bytes_max"], 400);
  // Halves of a rank's layers: 8, 6 and 4 of them at a time, of two stages each with its most.
  EXPECT_EQ(found.at("zb-v")["contexts_max"], 8);
  EXPECT_EQ(found.at("zb-v-half")["contexts_max"], 6);
  EXPECT_EQ(found.at("zb-v-min")["contexts_max"], 4);
  EXPECT_EQ(found.at("zb-v")["memory_bytes_max"], 9 * 50);
  EXPECT_EQ(found.at("zb-v-half")["memory_bytes_max"], 7 * 50);
  EXPECT_EQ(found.at("zb-v-min")["memory_bytes_max"], 5 * 50);
  // 11 chunks at a time, of two stages that have their most, 8 and 4, at different times.
  EXPECT_EQ(found.at("interleaved")["contexts_max"], 11);
  EXPECT_EQ(found.at("interleaved")["memory_bytes_max"], (8 + 4) * 50);
  const auto more = pipelines({"pipeline", "--schedules", "gpipe", "--ranks", "2",
                               "--micro-batches", "2", "--message-bytes", "10", "--json", "-"});
  // Both activations of the second rank are read before the first gradient leaves it.
  EXPECT_EQ(more.at("gpipe")["memory_bytes_max"], 10);
}

// 16 and 256 micro-batches on 4 ranks: 0.842 and 0.988 of the time.
TEST(SimPipeline, PP8_PP9_StepsWithoutAFlush) {
  for (const auto& [steps, expected] : {std::pair("4", 0.842), std::pair("64", 0.988)}) {
    const auto found =
        pipelines({"pipeline", "--schedules", "pipedream;pipedream[vertical_sync=on];2bw",
                   "--micro-batches", "4", "--steps", steps, "--json", "-"});
    ASSERT_EQ(found.size(), 3U);
    for (const auto& [name, row] : found) {
      EXPECT_NEAR(1 - row["bubble_of_all"].get<double>(), expected, 0.0005) << name;
      EXPECT_EQ(row["contexts_max"], 4) << name;
      EXPECT_EQ(row["versions_max"], name == "2bw" ? 2 : 4) << name;
    }
  }
  EXPECT_THAT(refusal({"pipeline", "--schedules", "2bw", "--micro-batches", "3"}),
              fails(kInvalid, "2bw", "3 micro-batches", "4"));
}

TEST(SimPipeline, FilesAreReadDrawnAndRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/own.csv";
  ASSERT_TRUE(write_whole_file(path, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n").ok());
  const std::string spec = "file[" + path + "]";
  const std::string svg = folder.path() + "/own.svg";
  const std::string trace = folder.path() + "/own.json";
  const auto found = pipelines({"pipeline", "--schedules", spec, "--ranks", "2", "--micro-batches",
                                "2", "--svg", svg, "--trace", trace, "--json", "-"});
  EXPECT_EQ(found.at(spec)["makespan"], 9);
  EXPECT_THAT(read_whole_file(svg).value(), HasSubstr("<title>1B1, "));
  EXPECT_TRUE(nlohmann::json::accept(read_whole_file(trace).value()));
  EXPECT_THAT(refusal({"pipeline", "--schedules", spec, "--ranks", "3", "--micro-batches", "2"}),
              fails(kInvalid, "2", "3", "ranks"));
  EXPECT_THAT(refusal({"pipeline", "--schedules", "gpipe;nonesuch"}), fails(kInvalid, "nonesuch"));
  EXPECT_THAT(refusal({"pipeline", "--svg", svg}), fails(kInvalid, "8"));
  ASSERT_TRUE(write_whole_file(path, "0F0,0B0\n1F1,1B1\n").ok());
  EXPECT_THAT(refusal({"pipeline", "--schedules", spec, "--ranks", "2", "--micro-batches", "2"}),
              fails(kInvalid, "1F0", "missing"));
  ASSERT_TRUE(write_whole_file(path, "0F0,0B0\n1F0,1X0\n").ok());
  EXPECT_THAT(refusal({"pipeline", "--schedules", spec, "--ranks", "2"}),
              fails(kInvalid, "line 2", "column 5", "1X0"));
}

std::string inspected(const std::vector<std::string>& words) {
  ::testing::internal::CaptureStdout();
  const auto outcome = inspect_schedule(words);
  std::string text = ::testing::internal::GetCapturedStdout();
  return outcome.has_value() ? text : std::string(outcome.error().message());
}

TEST(InspectPipeline, StreamsAreCheckedPrintedAndReadBack) {
  const std::string printed = inspected({"pipeline", "pipedream", "2", "1"});
  EXPECT_THAT(printed, HasSubstr("period\nrank 0: 0F0#1 0B1 0DROP 0STASH#1 0OPT#1\n"));
  EXPECT_THAT(printed, HasSubstr("     0         2         2\n     1         1         1\n"));
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/own.csv";
  const std::string csv = inspected({"pipeline", "2bw", "2", "3", "--csv"});
  ASSERT_TRUE(write_whole_file(path, csv).ok());
  EXPECT_EQ(inspected({"pipeline", "file[" + path + "]", "--csv"}), csv);
  ASSERT_TRUE(write_whole_file(path,
                               "stream ranks=1 stages=1 micro-batches=1 window=1 versions=1\n"
                               "place 0\nstart\nrank 0:\nperiod\nrank 0: 0F0 0F0 0B0 0OPT\n"
                               "drain\nrank 0:\n")
                  .ok());
  EXPECT_THAT(inspected({"pipeline", "file[" + path + "]"}),
              ::testing::AllOf(HasSubstr("does not close"), HasSubstr("0OPT")));
  const std::string layered = inspected({"pipeline", "2bw[stages=3+4]", "2", "2", "--csv"});
  EXPECT_THAT(layered, HasSubstr("place,0,1\nlayers,3,4\nstart\n"));
  ASSERT_TRUE(write_whole_file(path, layered).ok());
  EXPECT_THAT(inspected({"pipeline", "file[" + path + "]"}), HasSubstr("\nlayers 3 4\nstart\n"));
}

TEST(InspectPipeline, ListsAreCheckedAndPrinted) {
  EXPECT_THAT(inspected({"pipeline", "1f1b", "2", "3"}),
              ::testing::AllOf(HasSubstr("rank 1: 1F0 1B0 1F1 1B1 1F2 1B2\n"),
                               HasSubstr("checked: every operation once")));
  EXPECT_EQ(inspected({"pipeline", "gpipe", "2", "1", "--links", "ordered", "--csv"}),
            "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
  EXPECT_THAT(inspected({"pipeline", "gpipe", "2"}), HasSubstr("MICRO-BATCHES"));
  EXPECT_THAT(inspected({"pipeline", "gpipe", "0", "1"}), HasSubstr("got '0'"));
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/own.csv";
  ASSERT_TRUE(write_whole_file(path, "0F0,0B0\n1B0,1F0\n").ok());
  EXPECT_THAT(inspected({"pipeline", "file[" + path + "]"}), HasSubstr("1B0"));
}

}  // namespace
}  // namespace gradwire::sim_test
