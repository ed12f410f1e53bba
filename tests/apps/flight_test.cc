// gradwire inspect flight: from the files that ranks left to the cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "apps/flight_folder.h"
#include "apps/inspect/flight_files.h"
#include "apps/launcher_watch.h"
#include "collectives/failure/flight_recorder.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::flight_test {
namespace {

using ::testing::HasSubstr;

FlightRecord operation(std::uint64_t number, Signature signature, FlightRecord::State state) {
  FlightRecord record;
  record.number = number;
  record.signature = signature;
  record.state = state;
  return record;
}

constexpr Signature kSum{.name = "all_reduce", .dtype = "f32", .reduce = "sum", .elems = 1000};
constexpr auto kDone = FlightRecord::State::kDone;
constexpr auto kFailed = FlightRecord::State::kFailed;

// The whole sentences of this family: what is told of each way to fail, once.
class Flight : public ::testing::Test {
 protected:
  void leave(int rank, const std::vector<FlightRecord>& records, FlightFailure failure = {}) {
    failure.rank = rank;
    failure.size = 4;
    ASSERT_TRUE(write_flight(folder_.path(), failure, records).ok());
  }
  std::string explain() {
    const auto files = read_flight_files(folder_.path());
    if (!files.has_value()) return std::string(files.error().message());
    return explain_flight(files.value().begin()->second);
  }
  TemporaryFolder folder_;
};

TEST_F(Flight, ARankThatTheOthersLost) {
  for (const int rank : {0, 1, 3}) {
    leave(rank, {operation(0, kSum, kDone), operation(1, kSum, kFailed)},
          {.status = Status(Code::kPeerLost, "rank 2 lost in all_reduce"), .lost = {2}});
  }
  EXPECT_THAT(explain(), HasSubstr("rank 2 left no record"));
  EXPECT_THAT(explain(), HasSubstr("ranks 0, 1, 3 reported: rank 2 lost in all_reduce"));
  EXPECT_THAT(explain(),
              HasSubstr("cause: rank 2 was lost (reported by ranks 0, 1, 3); it left no record"));
  EXPECT_THAT(explain(),
              HasSubstr("failed operation 1 of communicator 0: all_reduce of 1000 f32 sum"));
}

TEST_F(Flight, RanksThatDiffer) {
  Signature other = kSum;
  other.reduce = "max";
  for (const int rank : {0, 1, 2, 3}) {
    leave(rank, {operation(0, kSum, kDone), operation(1, rank == 1 ? other : kSum, kFailed)});
  }
  EXPECT_THAT(explain(), HasSubstr("cause: the ranks called different operations as operation 1 of "
                                   "communicator 0:\n"
                                   "  all_reduce of 1000 f32 max: rank 1\n"
                                   "  all_reduce of 1000 f32 sum: ranks 0, 2, 3"));
}

TEST_F(Flight, ARankThatIsBehind) {
  for (const int rank : {0, 1, 2, 3}) {
    std::vector<FlightRecord> records{operation(0, kSum, kDone)};
    if (rank != 3) records.push_back(operation(1, kSum, kFailed));
    leave(rank, records);
  }
  EXPECT_THAT(explain(), HasSubstr("cause: rank 3 had not begun operation 1 of communicator 0"));
}

// What its message says is for people, and may be anybody's words.
TEST_F(Flight, ALauncherThatHasDiedIsKnownByTheMarkOfItsRanks) {
  const Status words(Code::kCancelled, "the launcher has died of boredom");
  for (const int rank : {0, 1}) leave(rank, {}, {.status = words, .lost = {3}});
  EXPECT_THAT(explain(), HasSubstr("cause: rank 3 was lost"));
  std::ofstream(folder_.path() + "/launcher-died-0") << getpid() + 1 << "\n";  // an earlier job's
  EXPECT_THAT(explain(), HasSubstr("cause: rank 3 was lost"));
  leave_orphan_mark(folder_.path(), 1);
  EXPECT_THAT(explain(), HasSubstr("cause: the launcher died (reported by rank 1)"));
}

// Processes of the next job in the folder may have the same numbers.
TEST_F(Flight, AMarkOfAnEarlierJobIsRemoved) {
  leave(0, {}, {.status = Status(Code::kPeerLost, "lost"), .lost = {3}});
  leave_orphan_mark(folder_.path(), 0);
  const auto alone = make_inproc_communicators(1);
  ASSERT_TRUE(alone.has_value()) << alone.error().message();
  EXPECT_EQ(LauncherWatch::start("", *alone.value()[0], folder_.path()), nullptr);
  EXPECT_THAT(explain(), HasSubstr("cause: rank 3 was lost"));
}

TEST_F(Flight, AFifoInAMarksPlaceIsNotWaitedFor) {
  leave(0, {}, {.status = Status(Code::kPeerLost, "lost"), .lost = {3}});
  ASSERT_EQ(mkfifo((folder_.path() + "/launcher-died-0").c_str(), 0600), 0);
  leave_orphan_mark(folder_.path(), 0);
  EXPECT_THAT(explain(), HasSubstr("cause: rank 3 was lost"));
}

TEST_F(Flight, FilesThatAreNoneAreRefused) {
  const auto refusal = [this] {
    const auto files = read_flight_files(folder_.path());
    return files.has_value() ? Status() : files.error();
  };
  EXPECT_THAT(refusal(), fails(Code::kInvalidArgument, folder_.path(), "--flight"));
  std::ofstream(folder_.path() + "/rank-0.json")
      << R"({"version":1,"rank":5,"size":2,"operations":[]})";
  EXPECT_THAT(refusal(), fails(Code::kInvalidArgument, "rank-0.json", "version 1"));
}

TEST_F(Flight, OddTypesInsideAreOverlooked) {
  std::ofstream(folder_.path() + "/rank-0.json")
      << R"({"version":1,"rank":0,"size":2,"lost":[1,"x",-4,1e9],"message":7,"operations":[3,{"name":5}]})";
  EXPECT_THAT(explain(), HasSubstr("cause: rank 1 was lost (reported by rank 0)"));
}

}  // namespace
}  // namespace gradwire::flight_test
