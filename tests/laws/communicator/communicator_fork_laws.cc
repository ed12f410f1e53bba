// What a rank's fork() may do: the child's copies of the communicator and its relatives touch
// nothing of the parent's, and a child that lives on does not hide that the parent has ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "tests/laws/communicator/communicator_process_laws.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/process_ranks.h"

namespace gradwire {
namespace {

constexpr unsigned kChildLimit = 20;  // seconds
// A rank that says nothing is lost after 5 s.
constexpr double kAtOnce = 3.5;
constexpr double kSilence = 9;

// A fault of `child`, which was forked from here and should end by itself with status 0.
std::string await(pid_t child) {
  const Deadline until = deadline_in(kChildLimit + 5);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) != child) {
    if (std::chrono::steady_clock::now() > until) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return "the child did not end";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return status == 0 ? "" : format("the child ended with wait status %d", status);
}

std::string sum_ones(Communicator& comm, std::span<float> data) {
  std::ranges::fill(data, 1.0f);
  auto work = comm.all_reduce(view_of(data), ReduceOp::kSum);
  if (!work.has_value()) return std::string(work.error().message());
  if (const Status status = work.value().wait(); !status.ok()) return std::string(status.message());
  const auto wanted = static_cast<float>(comm.size());
  return std::ranges::count(data, wanted) == std::ssize(data) ? "" : "a wrong sum";
}

// What a rank holds; in a child all of it goes, the other way round.
struct Holdings {
  std::unique_ptr<Communicator> world, part;
  Buffer buffer;
  std::optional<Work> receiving;
};

std::string destroy_in_child(Holdings& mine) {
  const pid_t child = fork();
  if (child < 0) return "fork";
  if (child > 0) return await(child);
  alarm(kChildLimit);
  mine.receiving.reset();
  mine.buffer = Buffer();
  mine.part.reset();
  // It is inert: a call is refused, and reaches nobody.
  std::vector<float> data(10, 0.0f);
  const auto refused = mine.world->all_reduce(view_of(std::span(data)), ReduceOp::kSum);
  const bool inert = !refused.has_value() && refused.error().code() == Code::kUnsupported;
  mine.world.reset();
  _exit(inert ? 0 : 3);
}

// As most programs end, with what libraries do then.
std::string exit_in_child() {
  const pid_t child = fork();
  if (child < 0) return "fork";
  if (child > 0) return await(child);
  alarm(kChildLimit);
#ifdef __SANITIZE_ADDRESS__
  _exit(0);  // what its parent's other threads hold would count as leaks
#endif
  std::exit(0);
}

// Every rank forks while a receive is open that only then gets its message.
std::string fork_and_go_on(std::unique_ptr<Communicator> world) {
  Holdings mine;
  mine.world = std::move(world);
  const int right = (mine.world->rank() + 1) % mine.world->size();
  const int left = (mine.world->rank() + mine.world->size() - 1) % mine.world->size();
  auto part = mine.world->split(0, mine.world->rank());
  if (!part.has_value()) return std::string(part.error().message());
  mine.part = std::move(part).value();
  constexpr std::size_t kElems = 300000;
  auto buffer = mine.world->allocate(kElems * sizeof(float));
  if (!buffer.has_value()) return std::string(buffer.error().message());
  mine.buffer = std::move(buffer).value();
  const std::span<float> shared(reinterpret_cast<float*>(mine.buffer.bytes().data()), kElems);
  for (Communicator* comm : {mine.world.get(), mine.part.get()}) {
    if (std::string fault = sum_ones(*comm, shared); !fault.empty()) return "before: " + fault;
  }
  std::vector<float> in(1000, 0.0f);
  auto receiving = mine.world->start(OpCall::recv(view_of(std::span(in)), left, 5));
  if (!receiving.has_value()) return std::string(receiving.error().message());
  mine.receiving.emplace(std::move(receiving).value());
  if (std::string fault = destroy_in_child(mine); !fault.empty()) return fault;
  if (std::string fault = exit_in_child(); !fault.empty()) return "a child that exits: " + fault;
  if (std::ranges::count(shared, static_cast<float>(mine.world->size())) != std::ssize(shared))
    return "the buffer has lost what was in it";
  const std::vector<float> out(1000, static_cast<float>(mine.world->rank()));
  auto sending = mine.world->start(OpCall::send(const_view_of(std::span(out)), right, 5));
  if (!sending.has_value()) return std::string(sending.error().message());
  for (Work* work : {&sending.value(), &*mine.receiving}) {
    if (const Status status = work->wait(); !status.ok()) return std::string(status.message());
  }
  if (std::ranges::count(in, static_cast<float>(left)) != 1000) return "another message";
  for (int i = 0; i < 20; ++i) {
    for (Communicator* comm : {mine.world.get(), mine.part.get()}) {
      if (std::string fault = sum_ones(*comm, shared); !fault.empty()) return "after: " + fault;
    }
  }
  return "";
}

TEST_P(CommunicatorProcessForks, ChildrenTouchNothingOfTheirParents) {
  const ProcessJob job = GetParam();
  const auto outcomes = on_processes(job.ranks, {.deadline_seconds = 30, .node_of = job.node_of},
                                     100, fork_and_go_on, {}, job.backend);
  EXPECT_THAT(outcomes, ended_cleanly(job.ranks));
}

// A child that holds whatever its parent had open, but for the pipe that brings the rank's text.
void fork_a_sleeper() {
  if (fork() != 0) return;
  alarm(kChildLimit);
  for (int fd = 0; fd < 64; ++fd) {
    struct stat info {};
    if (fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode)) close(fd);
  }
  while (true) pause();
}

// Seconds from a rank's death until the others' operations have failed for it.
TEST_P(CommunicatorProcessForks, AChildThatLivesOnHidesNoDeath) {
  const ProcessJob job = GetParam();
  constexpr int kVictim = 1;
  constexpr double kDeadline = 60;
  const ProcessCount begun;
  const auto outcomes = on_processes(
      job.ranks, {.deadline_seconds = kDeadline, .node_of = job.node_of}, 100,
      [&](std::unique_ptr<Communicator> world) -> std::string {
        std::vector<float> data(20000);
        if (std::string fault = sum_ones(*world, data); !fault.empty()) return fault;
        if (world->rank() == kVictim) fork_a_sleeper();
        begun.come();
        if (!begun.await(job.ranks, 60)) return "not all have begun";
        if (world->rank() == kVictim) raise(SIGKILL);
        const auto start = std::chrono::steady_clock::now();
        std::string fault;
        while (fault.empty()) fault = sum_ones(*world, data);
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
        const double limit = job.silence ? kSilence : kAtOnce;
        if (time.count() > limit) return format("after %.1f s: ", time.count()) + fault;
        const auto code = world->status().code();
        return code == Code::kPeerLost ? "" : std::string(to_string(code)) + ": " + fault;
      },
      {}, job.backend);
  EXPECT_THAT(outcomes, survivors_ended_saying(job.ranks, kVictim, std::string()));
}

}  // namespace
}  // namespace gradwire
