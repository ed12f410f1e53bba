#include "collectives/failure/flight_recorder.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace gradwire::flight_recorder_test {
namespace {

using ::testing::HasSubstr;

FlightRecord record(std::uint32_t communicator, std::uint64_t number, std::string_view name) {
  FlightRecord made;
  made.communicator = communicator;
  made.number = number;
  made.signature = {.name = name, .dtype = "f32", .reduce = "sum", .elems = 7};
  made.algorithm = "ring";
  return made;
}

TEST(Signature, SaysAllThatRanksMustAgreeOn) {
  EXPECT_EQ(to_string(Signature{.name = "barrier"}), "barrier");
  EXPECT_EQ(to_string(Signature{
                .name = "reduce", .dtype = "bf16", .reduce = "max", .elems = 12, .root = 3}),
            "reduce of 12 bf16 max with root 3");
}

TEST(FlightRecorder, KeepsTheLastOnes) {
  FlightRecorder recorder(3);
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(recorder.begin(record(0, i, "all_reduce")), i);
    recorder.end(i, FlightRecord::State::kDone, 100 * i);
  }
  const auto records = recorder.records();
  ASSERT_EQ(records.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(records[i].number, i + 2);
    EXPECT_EQ(records[i].bytes_sent, 100 * (i + 2));
    EXPECT_GE(records[i].ended, records[i].begun);
  }
  EXPECT_FALSE(recorder.last_of(0, 1).has_value());  // overwritten
  recorder.end(1, FlightRecord::State::kFailed, 1);  // says nothing about another
  EXPECT_EQ(recorder.last_of(0, 4)->state, FlightRecord::State::kDone);
}

TEST(FlightRecorder, FindsByCommunicatorAndNumber) {
  FlightRecorder recorder(8);
  (void)recorder.begin(record(0, 3, "barrier"));
  (void)recorder.begin(record(7, 9, "broadcast"));
  FlightRecord recv = record(0, 100, "recv");
  recv.collective = false;
  (void)recorder.begin(recv);
  EXPECT_EQ(recorder.last_of(7, 9)->signature.name, "broadcast");
  EXPECT_FALSE(recorder.last_of(0, 9).has_value());
  EXPECT_FALSE(recorder.last_of(0, 100).has_value());  // numbers of its own
  EXPECT_EQ(recorder.last_of(0)->number, 3u);
  EXPECT_FALSE(recorder.last_of(1).has_value());
}

TEST(FlightRecorder, NothingIsKeptWhereNothingIsWanted) {
  FlightRecorder recorder(0);
  recorder.end(recorder.begin(record(0, 0, "barrier")), FlightRecord::State::kDone, 0);
  EXPECT_TRUE(recorder.records().empty());
}

TEST(FlightRecorder, WritesWhatJsonReadersTake) {
  FlightRecorder recorder(4);
  recorder.end(recorder.begin(record(2, 41, "all_reduce")), FlightRecord::State::kFailed, 12, {3});
  FlightFailure failure{.rank = 1,
                        .size = 4,
                        .generation = 2,
                        .status = Status(Code::kPeerLost, "rank 3 lost: \"x\\y\"\n"),
                        .lost = {3}};
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("gw-flight-" + std::to_string(getpid()))).string();
  ASSERT_EQ(write_flight(folder + "/deep", failure, recorder.records()).message(), "ok");
  std::ifstream file(folder + "/deep/rank-1-after-2.json");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("\"rank\":1,\"size\":4,\"generation\":2,"));
  EXPECT_THAT(text.str(), HasSubstr(R"("message":"rank 3 lost: \"x\\y\"\u000a")"));
  EXPECT_THAT(text.str(), HasSubstr(R"("lost":[3],"silent":[],"absent":[])"));
  EXPECT_THAT(text.str(),
              HasSubstr(R"("name":"all_reduce","dtype":"f32","reduce":"sum","elems":7)"));
  EXPECT_THAT(text.str(), HasSubstr(R"("state":"failed")"));
  EXPECT_THAT(text.str(), HasSubstr(R"("waiting_for":[3])"));
  std::filesystem::remove_all(folder);
}

// It would be waited for with the error that everybody wants to read.
TEST(FlightRecorder, AFifoInTheWayIsAnError) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder.path() + "/.rank-0.part").c_str(), 0600), 0);
  const Status status = write_flight(folder.path(), {}, {});
  EXPECT_THAT(status, fails(Code::kInvalidArgument, folder.path() + "/rank-0.json"));
}

TEST(FlightRecorder, AFolderThatCannotBeIsAnError) {
  const Status status = write_flight("/proc/nothing/here", {}, {});
  EXPECT_THAT(status, fails(Code::kInvalidArgument, "/proc/nothing/here/rank-0.json"));
}

}  // namespace
}  // namespace gradwire::flight_recorder_test
