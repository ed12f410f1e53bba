// The launcher's pure parts: cutting output into lines, and the verdict.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "apps/run/lines.h"
#include "apps/run/signal_repeats.h"
#include "apps/run/verdict.h"

namespace gradwire::run_test {
namespace {

// What a queue writes, read back from a pipe.
class Lines : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::pipe(ends_.data()), 0); }
  void TearDown() override {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  std::string written(OutputQueue& queue) {
    queue.write_some();
    std::array<char, 4096> chunk{};
    if (::write(ends_[1], "!", 1) != 1) return "no pipe";  // so that read() has something
    const ssize_t count = ::read(ends_[0], chunk.data(), chunk.size());
    return {chunk.data(), static_cast<std::size_t>(count - 1)};
  }
  std::array<int, 2> ends_{};
};

TEST_F(Lines, AreWholeHoweverTheBytesCome) {
  OutputQueue queue(ends_[1]);
  LinePrefixer lines(7, queue);
  lines.feed("on");
  EXPECT_EQ(written(queue), "");
  lines.feed("e\ntwo\n\nfo");
  EXPECT_EQ(written(queue), "rank 7 | one\nrank 7 | two\nrank 7 | \n");
  lines.feed("ur");
  lines.finish();
  lines.finish();
  EXPECT_EQ(written(queue), "rank 7 | four\n");
}

TEST_F(Lines, PlainOnesKeepTheirWords) {
  OutputQueue queue(ends_[1]);
  LinePrefixer lines(7, queue, true);
  lines.feed("one\ntw");
  lines.finish();
  EXPECT_EQ(written(queue), "one\ntw\n");
}

TEST_F(Lines, TooLongOnesAreCutAtTheLimit) {
  OutputQueue queue(ends_[1]);
  LinePrefixer lines(0, queue);
  const std::string limit(LinePrefixer::kMaxLine, 'x');
  lines.feed(limit);
  EXPECT_TRUE(queue.empty());  // a newline may come
  lines.feed("y");
  EXPECT_FALSE(queue.empty());
  lines.feed("\n");
  lines.feed(limit + "\n");
  EXPECT_FALSE(queue.full());
}

TEST_F(Lines, TheLastErrorIsKept) {
  OutputQueue queue(ends_[1]);
  LinePrefixer lines(0, queue);
  lines.feed("gradwire: error: first\nsomething else\ngradwire: error: second (1; 2)\nbye\n");
  EXPECT_EQ(lines.last_error(), "second (1; 2)");
}

TEST_F(Lines, AQueueWithoutReaderDropsWhatComes) {
  OutputQueue queue(ends_[1]);
  ::close(ends_[0]);
  (void)::signal(SIGPIPE, SIG_IGN);
  queue.append("text");
  queue.write_some();
  EXPECT_TRUE(queue.closed());
  queue.append("more");
  EXPECT_TRUE(queue.empty());
  ends_[0] = ::dup(ends_[1]);
}

RankState ended(int status, int signal = 0, std::string error = "") {
  return {.running = false,
          .exit_status = status,
          .signal = signal,
          .stopped_by = 0,
          .last_error = std::move(error)};
}

TEST(SignalRepeats, TheSameOneAtOnceIsOneAndALaterOneOrAnotherIsNot) {
  SignalRepeats repeats;
  EXPECT_FALSE(repeats.is_repeat(SIGINT));
  EXPECT_TRUE(repeats.is_repeat(SIGINT));
  EXPECT_FALSE(repeats.is_repeat(SIGTERM));
  EXPECT_FALSE(repeats.is_repeat(SIGINT));
  std::this_thread::sleep_for(std::chrono::duration<double>(SignalRepeats::kSeconds + 0.05));
  EXPECT_FALSE(repeats.is_repeat(SIGINT));
}

TEST(JobResult, AllIsWellWhenEveryRankEndsWithZero) {
  const JobResult verdict = judge({.ranks = {ended(0), ended(0)}});
  EXPECT_EQ(verdict.exit_status, 0);
  EXPECT_EQ(verdict.message, "");
}

TEST(JobResult, NamesTheFirstFailure) {
  JobResult verdict = judge({.ranks = {ended(0), ended(3)}, .first_failed = 1});
  EXPECT_EQ(verdict.exit_status, 3);
  EXPECT_EQ(verdict.message, "rank 1 failed first: exit status 3");
  verdict = judge({.ranks = {ended(0, 11), ended(1)}, .first_failed = 0});
  EXPECT_EQ(verdict.exit_status, 139);
  EXPECT_EQ(verdict.message, "rank 0 failed first: killed by signal 11 (SIGSEGV)");
  verdict = judge({.ranks = {ended(1, 0, "no data")}, .first_failed = 0});
  EXPECT_EQ(verdict.message, "rank 0 failed first: exit status 1: no data");
}

TEST(JobResult, BlamesAStoppedRankBeforeThoseThatWaitedForIt) {
  JobEnd end{
      .ranks = {ended(1, 0, "rank 1 lost"), ended(0, 9)}, .first_failed = 0, .first_stopped = 1};
  end.ranks[1].stopped_by = 19;
  const JobResult verdict = judge(end);
  EXPECT_EQ(verdict.exit_status, 1);
  EXPECT_EQ(verdict.message,
            "rank 1 failed first: stopped by signal 19 (SIGSTOP); then rank 0: exit status 1: "
            "rank 1 lost");
}

TEST(JobResult, ATimeoutIsNoRanksFault) {
  const JobResult verdict =
      judge({.ranks = {ended(0), ended(0, 15)}, .timeout = 2.5, .still_running = "rank 1"});
  EXPECT_EQ(verdict.exit_status, 124);
  EXPECT_EQ(verdict.message, "the job did not end within 2.5 s (--timeout); still running: rank 1");
}

TEST(JobResult, WhoeverEndsTheLauncherIsNamed) {
  const JobResult verdict = judge({.ranks = {ended(1)}, .first_failed = 0, .interrupted_by = 2});
  EXPECT_EQ(verdict.exit_status, 130);
  EXPECT_EQ(verdict.message, "interrupted by signal 2 (SIGINT)");
}

TEST(JobResult, ARankThatNeverJoinedIsNamedBeforeThoseThatLookedForIt) {
  const JobEnd end{.ranks = {ended(143), ended(0), ended(0, 15)}, .absent = 1};
  EXPECT_EQ(judge(end).exit_status, 1);
  EXPECT_EQ(judge(end).message.find("rank 1 ended with exit status 0 without joining"), 0);
}

TEST(JobResult, OutputThatIsLostIsNamed) {
  JobEnd end{.ranks = {ended(0)}, .output_error = ENOSPC};
  EXPECT_EQ(judge(end).exit_status, 1);
  EXPECT_EQ(judge(end).message, "cannot write to standard output (No space left on device)");
  end.of_error = true;
  EXPECT_EQ(judge(end).exit_status, 1);
  EXPECT_EQ(judge(end).message, "cannot write to standard error (No space left on device)");
}

TEST(JobResult, ListsRanks) {
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({0, 2, 5}), "ranks 0, 2, 5");
}

}  // namespace
}  // namespace gradwire::run_test
