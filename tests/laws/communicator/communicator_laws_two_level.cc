// The laws of Communicator where ranks are on several hosts and share memory with the others of
// theirs, and what operations by two levels promise beside them: right sums in every form, and the
// same bits on all ranks. Hosts are the nodes that the ranks are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/elements.h"
#include "base/hash.h"
#include "base/philox.h"
#include "base/small_floats.h"
#include "base/text.h"
#include "tests/laws/communicator/communicator_process_laws.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/process_ranks.h"
#include "tests/support/short_run.h"

namespace gradwire {
namespace {

using testing::Values;
using testing::ValuesIn;

std::vector<ProcessJob> jobs() {
  return {{"auto", 3, {0, 0, 1}}, {"auto", 4, {0, 0, 1, 1}}, {"auto", 4, {0, 1, 0, 1}}};
}
INSTANTIATE_TEST_SUITE_P(TwoLevel, CommunicatorProcessLaws, ValuesIn(jobs()), job_name);
INSTANTIATE_TEST_SUITE_P(TwoLevel, CommunicatorProcessMessages, ValuesIn(jobs()), job_name);
INSTANTIATE_TEST_SUITE_P(TwoLevel, CommunicatorProcessAhead, ValuesIn(sample_of(jobs(), 3, 2)),
                         job_name);
INSTANTIATE_TEST_SUITE_P(TwoLevel, CommunicatorProcessLoss,
                         Values(ProcessJob{"auto", 4, {0, 0, 1, 1}}));
INSTANTIATE_TEST_SUITE_P(TwoLevel, CommunicatorProcessForks,
                         Values(ProcessJob{"auto", 3, {0, 1, 1}, true}));

Status finish(Result<Work> work) {
  GW_ASSIGN(Work started, std::move(work));
  return started.wait();
}

std::string text_of(const Status& status) { return std::string(status.message()); }

// Element i of a rank: 1 to 4, so that sums of some ranks are exact in every type.
std::int64_t value(int rank, std::int64_t i) { return 1 + (rank + i) % 4; }

std::int64_t wanted(ReduceOp op, int size, std::int64_t i) {
  std::int64_t result = value(0, i);
  for (int r = 1; r < size; ++r) {
    const std::int64_t next = value(r, i);
    if (op == ReduceOp::kSum) result += next;
    if (op == ReduceOp::kMax) result = std::max(result, next);
    if (op == ReduceOp::kMin) result = std::min(result, next);
  }
  return result;
}

// Tensors in gradwire's memory or in the caller's.
class Tensor {
 public:
  Tensor(Communicator& world, bool shared, std::int64_t elems, DType dtype)
      : shape_(Shape::vector(elems)), dtype_(dtype) {
    const std::size_t bytes = static_cast<std::size_t>(elems) * size_of(dtype);
    auto buffer =
        shared ? world.allocate(std::max<std::size_t>(bytes, 1)) : Buffer::allocate(bytes);
    if (buffer.has_value()) buffer_ = std::move(buffer).value();
  }
  TensorView view() { return {buffer_.bytes().data(), shape_, dtype_}; }
  template <typename T>
  std::span<T> values() {
    return {reinterpret_cast<T*>(buffer_.bytes().data()), static_cast<std::size_t>(shape_.elems())};
  }

 private:
  Buffer buffer_;
  Shape shape_;
  DType dtype_;
};

template <typename T, DType kType>
std::string reduce_one(Communicator& world, ReduceOp op, std::int64_t elems, bool shared,
                       bool in_place) {
  Tensor in(world, shared, elems, kType);
  Tensor out(world, shared, elems, kType);
  const auto fill = [&](std::span<T> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<T>(value(world.rank(), static_cast<std::int64_t>(i)));
    }
  };
  fill(in.values<T>());
  const TensorView to = in_place ? in.view() : out.view();
  const Status status = finish(world.all_reduce(in.view(), to, op));
  const std::string name =
      format("%s of %lld %s, %s, %s: ", std::string(to_string(op)).c_str(),
             static_cast<long long>(elems), std::string(to_string(kType)).c_str(),
             shared ? "shared" : "private", in_place ? "in place" : "apart");
  if (!status.ok()) return name + text_of(status);
  const std::span<T> results = in_place ? in.values<T>() : out.values<T>();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const bool mean = op == ReduceOp::kMean;
    auto right = static_cast<double>(wanted(mean ? ReduceOp::kSum : op, world.size(), at));
    if (mean) right /= world.size();
    // A mean of thirds is rounded where it is taken.
    if (std::abs(static_cast<double>(results[i]) - right) > (mean ? 1e-6 * right : 0)) {
      return name + format("element %zu is %g, not %g", i, static_cast<double>(results[i]), right);
    }
    if (!in_place && in.values<T>()[i] != static_cast<T>(value(world.rank(), at))) {
      return name + format("input element %zu was changed", i);
    }
  }
  return "";
}

std::string reduce_by_two_levels(Communicator& world) {
  ShortRun floats(5);
  for (const std::int64_t elems : {0, 1, 3, 997, 4097, 65537, 2100001}) {  // the last in pieces
    for (const bool shared : {false, true}) {
      for (const bool in_place : {false, true}) {
        std::string fault;
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax}) {
          if (fault.empty() && floats.takes()) {
            fault = reduce_one<float, DType::kF32>(world, op, elems, shared, in_place);
          }
        }
        if (fault.empty() && elems < 100'000) {
          fault =
              reduce_one<std::int32_t, DType::kI32>(world, ReduceOp::kSum, elems, shared, in_place);
        }
        if (fault.empty() && elems < 100'000) {
          fault =
              reduce_one<std::uint8_t, DType::kU8>(world, ReduceOp::kMin, elems, shared, in_place);
        }
        if (!fault.empty()) return fault;
      }
    }
  }
  return "";
}

// Sums that are rounded: the same bits everywhere, in bf16 near the exact sum.
std::string agree_to_the_last_bit(Communicator& world) {
  for (const std::int64_t elems : {5, 2000, 123457}) {
    std::vector<float> values(static_cast<std::size_t>(elems));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint64_t bits = mix64(i * 64 + static_cast<std::uint64_t>(world.rank()));
      values[i] = static_cast<float>(bits >> 40) / 1e5F;
    }
    if (const Status status = finish(world.all_reduce(view_of(std::span(values)), ReduceOp::kSum));
        !status.ok()) {
      return text_of(status);
    }
    const auto own = static_cast<std::int64_t>(hash_bytes(std::as_bytes(std::span(values))));
    std::vector<std::int64_t> hashes(static_cast<std::size_t>(world.size()));
    const Status status =
        finish(world.all_gather(const_view_of(std::span(&own, 1)), view_of(std::span(hashes)),
                                {.algorithm = "ring", .deadline = {}, .stream = {}}));
    if (!status.ok()) return text_of(status);
    if (std::ranges::count(hashes, own) != world.size()) {
      return format("ranks differ in a sum of %lld", static_cast<long long>(elems));
    }
  }
  return "";
}

std::string goes_by_two_levels(Communicator& world) {
  if (world.describe().find("; shared memory inside 2 hosts") == std::string::npos) {
    return world.describe();
  }
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kBroadcast, OpKind::kBarrier}) {
    const auto algorithm = world.algorithm_for(kind, 1 << 20);
    if (!algorithm.has_value() || algorithm.value() != "two_level") {
      return std::string(to_string(kind)) + " is not by two levels";
    }
  }
  const auto named = world.algorithm_for(OpKind::kAllReduce, 1 << 20, "ring");
  return named.has_value() && named.value() == "ring" ? "" : "ring is not the ring";
}

// Plans, and operations in flight together, on memory that is used again and again.
std::string run_many_at_once(Communicator& world) {
  constexpr int kTensors = 12;
  std::vector<std::vector<float>> tensors(kTensors);
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<Work> works;
    for (int t = 0; t < kTensors; ++t) {
      auto& tensor = tensors[static_cast<std::size_t>(t)];
      const int large = t == 6 || t == 7 ? 1'000'000 : 0;  // these two go in pieces
      tensor.assign(static_cast<std::size_t>(1 + 3001 * t + large), static_cast<float>(t + 1));
      auto work = t % 4 == 3 ? world.broadcast(view_of(std::span(tensor)), t % world.size())
                             : world.all_reduce(view_of(std::span(tensor)), ReduceOp::kSum);
      if (!work.has_value()) return text_of(work.error());
      works.push_back(std::move(work).value());
    }
    for (int t = kTensors - 1; t >= 0; --t) {
      if (const Status status = works[static_cast<std::size_t>(t)].wait(); !status.ok()) {
        return text_of(status);
      }
      const auto& tensor = tensors[static_cast<std::size_t>(t)];
      const auto right = static_cast<float>((t + 1) * (t % 4 == 3 ? 1 : world.size()));
      if (std::ranges::count(tensor, right) != std::ssize(tensor)) return "a wrong element";
    }
  }
  return "";
}

using Program = std::string (*)(Communicator& world);

class CommunicatorTwoLevel : public testing::TestWithParam<ProcessJob> {};

TEST_P(CommunicatorTwoLevel, SumsAreRightAndAlike) {
  const auto outcomes = on_processes(
      GetParam().ranks, {.deadline_seconds = 60, .node_of = GetParam().node_of}, 75,
      [](std::unique_ptr<Communicator> world) {
        for (const Program program : {goes_by_two_levels, reduce_by_two_levels,
                                      agree_to_the_last_bit, run_many_at_once, keep_nans}) {
          if (std::string fault = program(*world); !fault.empty()) return fault;
        }
        return std::string();
      },
      {}, "auto");
  EXPECT_THAT(outcomes, ended_cleanly(GetParam().ranks));
}
INSTANTIATE_TEST_SUITE_P(TwoLevel, CommunicatorTwoLevel,
                         Values(ProcessJob{"auto", 3, {0, 1, 1}},
                                ProcessJob{"auto", 4, {0, 1, 1, 0}},
                                ProcessJob{"auto", 5, {0, 0, 1, 1, 1}}),
                         job_name);

// Groups on one host go through its memory alone, groups of one rank of each host have none, and
// the others are of two levels again.
TEST(CommunicatorTwoLevelGroups, AreWhatTheirRanksHostsSay) {
  const auto outcomes = on_processes(
      5, {.node_of = {0, 0, 1, 1, 1}}, 60,
      [](std::unique_ptr<Communicator> world) {
        const int rank = world->rank();
        std::string text;
        for (const int color : {rank / 2, rank % 2, rank == 4 ? -1 : 0}) {
          auto part = world->split(color, 0);
          if (!part.has_value()) return text_of(part.error());
          if (part.value() == nullptr) continue;
          Communicator& group = *part.value();
          std::vector<float> ones(5000, 1.0F);
          const Status status = finish(group.all_reduce(view_of(std::span(ones)), ReduceOp::kSum));
          if (!status.ok()) return text_of(status);
          const auto right = static_cast<float>(group.size());
          if (std::ranges::count(ones, right) != 5000) return std::string("a wrong sum");
          const std::string how = group.describe();
          text += how.find("collectives in shared memory") != std::string::npos ? "m"
                  : how.find("inside 2 hosts") != std::string::npos             ? "2"
                                                                                : "-";
        }
        return text;
      },
      {}, "auto");
  // {0,1}, {2,3} and {4}; {0,2,4} and {1,3}; {0,1,2,3}.
  EXPECT_THAT(outcomes, ended_saying({"m22", "m-2", "m22", "m-2", "-2"}));
}

// What a group inside a host has sent through memory counts in its group and in the job, while the
// group is there and when it has gone.
TEST(CommunicatorTwoLevelGroups, CountTheirBytesInTheJobsToo) {
  constexpr std::uint64_t kBytes = 8 << 20;
  const auto outcomes = on_processes(
      4, {.deadline_seconds = 20, .node_of = {0, 0, 1, 1}}, 60,
      [](std::unique_ptr<Communicator> world) {
        const int first = world->rank() / 2 * 2;
        auto pair = world->create_group(std::array{first, first + 1});
        if (!pair.has_value()) return text_of(pair.error());
        std::vector<std::uint8_t> data(kBytes);
        const TensorView tensor = view_of(std::span(data));
        const std::uint64_t before = world->transport_stats().bytes_sent;
        const std::uint64_t groups_before = pair.value()->bytes_sent();
        const bool sends = pair.value()->rank() == 0;
        const Status status =
            finish(sends ? pair.value()->send(tensor, 1) : pair.value()->recv(tensor, 0));
        if (!status.ok()) return text_of(status);
        const std::uint64_t wanted = sends ? kBytes : 0;
        const std::uint64_t groups = pair.value()->bytes_sent() - groups_before;
        if (groups != wanted) {
          return format("the group's: %llu (%llu wanted)", static_cast<unsigned long long>(groups),
                        static_cast<unsigned long long>(wanted));
        }
        for (const bool gone : {false, true}) {
          if (gone) pair.value().reset();
          // Beside them are heartbeats.
          const std::uint64_t job = world->transport_stats().bytes_sent - before;
          if (job < wanted || job >= wanted + kBytes) {
            return format("the job's, %s: %llu (%llu wanted)", gone ? "later" : "at once",
                          static_cast<unsigned long long>(job),
                          static_cast<unsigned long long>(wanted));
          }
        }
        return std::string();
      },
      {}, "auto");
  EXPECT_THAT(outcomes, ended_cleanly(4));
}

}  // namespace
}  // namespace gradwire
