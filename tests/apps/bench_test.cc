// The rows that `gradwire bench` writes, which other programs read.
#include "apps/bench/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::bench_test {
namespace {

using Json = nlohmann::json;

constexpr Code kInvalid = Code::kInvalidArgument;
class Bench : public ::testing::Test {
 protected:
  // Runs with --json; every line parsed.
  std::vector<Json> rows(std::vector<std::string> words) {
    const std::string path = folder_.path() + "/rows.jsonl";
    words.insert(words.end(), {"--json", path});
    const auto outcome = bench_command(words);
    EXPECT_TRUE(outcome.has_value()) << outcome.error().message();
    std::vector<Json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      lines.push_back(Json::parse(line, nullptr, false));
      EXPECT_TRUE(lines.back().is_object()) << line;
      for (const char* key : {"cpu", "cores", "gradwire", "commit", "ucx"}) {
        EXPECT_TRUE(lines.back().contains(key)) << key;
      }
    }
    return lines;
  }
  TemporaryFolder folder_;
};

TEST_F(Bench, AllReduceRowsHoldTheStableKeys) {
  const auto lines = rows({"all_reduce", "--inproc", "4", "--min", "1K", "--max", "16K", "--factor",
                           "4", "--seconds", "0.01", "--algorithm", "ring"});
  ASSERT_EQ(lines.size(), 3U);
  std::int64_t bytes = 1024;
  for (const Json& row : lines) {
    EXPECT_EQ(row["op"], "all_reduce");
    EXPECT_EQ(row["algorithm"], "ring");
    EXPECT_EQ(row["transport"], "inproc");
    EXPECT_EQ(row["compressor"], "none");
    EXPECT_EQ(row["dtype"], "f32");
    EXPECT_EQ(row["ranks"], 4);
    EXPECT_EQ(row["bytes"], bytes);
    EXPECT_EQ(row["wire_bytes"], bytes * 2 * 3 / 4);
    EXPECT_EQ(row["wrong"], 0);
    const double p50 = row["time_us_p50"];
    EXPECT_LE(row["time_us_min"].get<double>(), p50);
    EXPECT_GE(row["time_us_p99"].get<double>(), p50);
    const double algbw = static_cast<double>(bytes) / p50 / 1e3;
    EXPECT_NEAR(row["algbw_gbps"].get<double>(), algbw, 1e-6 * algbw);
    EXPECT_NEAR(row["busbw_gbps"].get<double>(), 1.5 * algbw, 2e-6 * algbw);
    bytes *= 4;
  }
}

TEST_F(Bench, CompressedAllReduceShapesAMatrix) {
  // 4,096 elements are (64, 64): rank 2 sends 2 (64 + 64) factors of 4 bytes, whatever frames them.
  const auto lines = rows({"all_reduce", "--inproc", "2", "--min", "16K", "--max", "16K",
                           "--compressor", "powersgd:rank=2", "--seconds", "0.01"});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["compressor"], "powersgd:rank=2");
  EXPECT_EQ(lines[0]["wire_bytes"], 2 * (64 + 64) * 4);
  EXPECT_EQ(lines[0]["dense_wire_bytes"], 16384);
  EXPECT_EQ(lines[0]["ratio"], 16);
  for (const char* key : {"wire_gbps", "encode_us", "exchange_us", "decode_us", "error_norm",
                          "dense_time_us_p50", "dense_algbw_gbps", "speedup"}) {
    EXPECT_TRUE(lines[0].contains(key)) << key;
  }
  EXPECT_EQ(lines[0]["wrong"], 0);
}

TEST_F(Bench, CsvHasAHeadingAndTheSameRows) {
  const std::string csv = folder_.path() + "/rows.csv";
  const auto lines =
      rows({"gather", "--transport", "inproc", "--ranks", "3", "--type", "bf16", "--root", "2",
            "--in-place", "--min", "1K", "--max", "2K", "--seconds", "0.01", "--csv", csv});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["dtype"], "bf16");
  EXPECT_EQ(lines[0]["root"], 2);
  EXPECT_EQ(lines[0]["in_place"], true);
  EXPECT_EQ(lines[0]["redop"], "none");
  EXPECT_EQ(lines[0]["wrong"], 0);
  std::ifstream file(csv);
  std::vector<std::string> text;
  for (std::string line; std::getline(file, line);) text.push_back(line);
  ASSERT_EQ(text.size(), 3U);
  EXPECT_THAT(text[0], ::testing::StartsWith("op,algorithm,transport,compressor,"));
  EXPECT_THAT(text[1], ::testing::StartsWith("gather," + std::string(lines[0]["algorithm"]) +
                                             ",inproc,none,private,3,1020,1,bf16,none,2,true,"));
}

TEST_F(Bench, CodecRowsHoldTheStableKeys) {
  const auto lines = rows({"codecs", "--elements", "4096", "--rounds", "1", "--compressors",
                           "cast:bf16;signsgd:vote=majority"});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["spec"], "cast:bf16");
  EXPECT_EQ(lines[0]["canonical"], "cast:type=bf16");
  EXPECT_EQ(lines[0]["elements"], 4096);
  EXPECT_EQ(lines[0]["threads"], 1);
  EXPECT_EQ(lines[0]["bits_per_element"], 16.0);
  for (const char* key : {"read_gbps", "encode_gbps", "encode_ef_gbps", "decode_gbps"}) {
    EXPECT_GT(lines[0][key].get<double>(), 0.0) << key;
  }
  EXPECT_LT(lines[0]["nmse"].get<double>(), 1e-5);
  EXPECT_TRUE(lines[1]["encode_ef_gbps"].is_null());  // a vote refuses error feedback
}

// Two products for each number of ranks, with their sizes; the figures follow from one another. No
// rate is expected: that is the machine's.
TEST_F(Bench, M15_RowsOfDividedProducts) {
  const auto lines =
      rows({"gemm", "--rows", "24", "--width", "16", "--tp", "1,2,8", "--seconds", "0.001"});
  ASSERT_EQ(lines.size(), 6U);
  const std::int64_t ranks[] = {1, 2, 8};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& row = lines[i];
    const std::int64_t t = ranks[i / 2];
    const bool column = i % 2 == 0;
    EXPECT_EQ(row["product"], column ? "column" : "row");
    EXPECT_EQ(row["ranks"], t);
    EXPECT_EQ(row["rows"], 24);
    EXPECT_EQ(row["in"], column ? 16 : 64 / t);
    EXPECT_EQ(row["out"], column ? 64 / t : 16);
    EXPECT_GE(row["operations"].get<std::int64_t>(), 3);
    const double p50 = row["time_us_p50"];
    EXPECT_LE(row["time_us_min"].get<double>(), p50);
    const double gflops = row["gflops"];
    EXPECT_NEAR(gflops, 2.0 * 24 * 16 * 64 / static_cast<double>(t) / p50 / 1e3, 1e-9 * gflops);
    const double whole = row["whole_gflops"];
    EXPECT_GT(whole, 0);
    EXPECT_DOUBLE_EQ(row["share_of_whole"], gflops / whole);
    EXPECT_TRUE(t > 1 || whole == gflops);
  }
}

TEST_F(Bench, BadRequestsSayWhatIsWrong) {
  const auto error = [](const std::vector<std::string>& words) {
    const auto outcome = bench_command(words);
    return outcome.has_value() ? Status() : outcome.error();
  };
  EXPECT_THAT(error({"all_reduce", "--inproc", "2", "--ranks", "2"}),
              fails(kInvalid, "bench all_reduce", "--inproc", "--ranks"));
  EXPECT_THAT(error({"all_reduce", "--min", "1Q"}),
              fails(kInvalid, "bench all_reduce", "--min", "1Q", "4096", "64K", "25M", "1G"));
  EXPECT_THAT(error({"scan"}), fails(kInvalid, "scan", "all_reduce", "codecs"));
  EXPECT_THAT(error({"gather", "--in-place", "--out-of-place"}),
              fails(kInvalid, "bench gather", "--in-place", "--out-of-place"));
  EXPECT_THAT(error({"reduce", "--op", "median"}),
              fails(kInvalid, "bench reduce", "--op", "median"));
  EXPECT_THAT(error({"gemm", "--width", "15", "--tp", "8"}),
              fails(kInvalid, "bench gemm", "inner width of 60", "8 ranks", "multiple"));
  EXPECT_THAT(error({"gemm", "--rows", "16777216", "--width", "1024"}),
              fails(kInvalid, "bench gemm", "matrix", "1073741824"));
  EXPECT_THAT(error({"codecs", "--compressors", "none;"}),
              fails(kInvalid, "bench codecs", "--compressors"));
}

// The test itself would be started as the ranks: what comes back is the refusal of one process.
TEST_F(Bench, WhatRanksWouldRefuseIsRefusedBeforeTheyStart) {
  const auto refusal = [](const char* flag, const char* value) {
    const auto outcome = bench_command({"all_reduce", "--ranks", "2", flag, value});
    return outcome.has_value() ? Status() : outcome.error();
  };
  EXPECT_THAT(refusal("--algorithm", "foo"), fails(kInvalid, "foo", "all_reduce"));
  EXPECT_THAT(refusal("--compressor", "topk:rat=3"), fails(kInvalid, "rat"));
  EXPECT_THAT(refusal("--min", "2G"), fails(kInvalid, "bench all_reduce", "2147483648"));
  EXPECT_THAT(refusal("--transport", "pigeon"), fails(kInvalid, "transport", "pigeon"));
  EXPECT_THAT(refusal("--json", "/proc/no/rows"), fails(kInvalid, "results", "/proc/no/rows"));
  EXPECT_THAT(refusal("--csv", "/proc/no/rows"), fails(kInvalid, "results", "/proc/no/rows"));
  const auto refusal_of = [&](const char* variable, const char* value,
                              const char* transport = "tcp") {
    setenv(variable, value, 1);
    const Status refused = refusal("--transport", transport);
    unsetenv(variable);
    return refused;
  };
  EXPECT_THAT(refusal_of("GRADWIRE_LINKS", "zap"), fails(kInvalid, "GRADWIRE_LINKS", "zap"));
  EXPECT_THAT(refusal_of("GRADWIRE_CHECKSUM", "2"), fails(kInvalid, "GRADWIRE_CHECKSUM", "2"));
  EXPECT_THAT(refusal_of("GRADWIRE_TCP_RATE", "1"), fails(kInvalid, "GRADWIRE_TCP_RATE", "1"));
  EXPECT_THAT(refusal_of("GRADWIRE_TCP_CONGESTION", "zap"),
              fails(kInvalid, "GRADWIRE_TCP_CONGESTION", "zap"));
  // A job over "auto" comes to tcp where one rank has no UCX.
  EXPECT_THAT(refusal_of("GRADWIRE_TCP_RATE", "1", "auto"),
              fails(kInvalid, "GRADWIRE_TCP_RATE", "1"));
  EXPECT_THAT(refusal_of("GRADWIRE_FLIGHT", "/proc/no"), fails(kInvalid, "flight", "/proc/no"));
}

TEST_F(Bench, ExplainPredictsEveryAlgorithmAndMarksOne) {
  setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  ::testing::internal::CaptureStdout();
  const auto outcome = bench_command({"all_reduce", "--inproc", "4", "--min", "1K", "--max", "4K",
                                      "--factor", "4", "--seconds", "0.01", "--explain", "--alpha",
                                      "1e-5", "--beta", "1e-9", "--gamma", "0"});
  const std::string text = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message();
  EXPECT_THAT(text, ::testing::HasSubstr("alpha 10 us, beta 1 ns/B, gamma 0 ns/B"));
  // 1 KiB on 4 ranks: the ring takes 6 alpha + 6/4 m beta, doubling 2 (alpha + m beta).
  EXPECT_THAT(text, ::testing::ContainsRegex("1024 +61.536 .* 22.048\\*"));
  EXPECT_THAT(text, ::testing::HasSubstr("recursive_doubling"));
  // What was measured is there for the next job, without the flags' numbers.
  std::ifstream cache(folder_.path() + "/gradwire/links");
  std::string heading;
  std::string key;
  double alpha = 0;
  ASSERT_TRUE(std::getline(cache, heading) && cache >> key >> alpha);
  EXPECT_EQ(heading, "gradwire links 2");
  EXPECT_GT(alpha, 0.0);
  EXPECT_NE(alpha, 1e-5);
}

}  // namespace
}  // namespace gradwire::bench_test
