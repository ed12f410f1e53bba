#include <array>
#include <string>
#include <thread>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "gradwire/schedule.h"
#include "tests/laws/communicator/communicator_programs.h"

namespace gradwire {
namespace {

using Floats = std::vector<float>;

Status wait_for(Result<Work> work) {
  if (!work.has_value()) return work.error();
  return work.value().wait();
}

// `rounds` sums of n elements in which rank r of the job has r + 1 everywhere.
std::string sum_job_ranks(Communicator& group, int rounds, std::size_t n) {
  float want = 0;
  for (int r = 0; r < group.size(); ++r) want += static_cast<float>(group.job_rank(r) + 1);
  for (int round = 0; round < rounds; ++round) {
    Floats data(n, static_cast<float>(group.job_rank(group.rank()) + 1));
    const Status status = wait_for(group.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
    if (!status.ok()) return group.describe() + ": " + std::string(status.message());
    if (data != Floats(n, want)) return group.describe() + ": wrong sum";
  }
  return "";
}

}  // namespace

std::string rows_and_columns(Communicator& world) {
  if (world.size() != 4) return "";
  auto row = world.split(world.rank() / 2, 0);
  if (!row.has_value()) return std::string(row.error().message());
  auto column = world.split(world.rank() % 2, 0);
  if (!column.has_value()) return std::string(column.error().message());
  std::string row_fault;
  std::thread thread([&] { row_fault = sum_job_ranks(*row.value(), 60, 5001); });
  const std::string column_fault = sum_job_ranks(*column.value(), 60, 3000);
  const std::string world_fault = sum_job_ranks(world, 20, 100);
  thread.join();
  return row_fault + column_fault + world_fault;
}

std::string split_and_split_again(Communicator& world) {
  const int p = world.size();
  for (int round = 0; round < 3; ++round) {
    // Everybody in one group, in reverse order.
    auto reversed = world.split(7, -world.rank());
    if (!reversed.has_value()) return std::string(reversed.error().message());
    if (reversed.value()->rank() != p - 1 - world.rank()) return "split: the key is not obeyed";
    if (reversed.value()->job_rank(0) != p - 1) return "split: job_rank is wrong";
    if (auto fault = sum_job_ranks(*reversed.value(), 1, 3); !fault.empty()) return fault;
    // Alone, from a communicator that was itself split; rank 0 of it belongs nowhere.
    const int color = reversed.value()->rank() == 0 ? -1 : reversed.value()->rank();
    auto alone = reversed.value()->split(color, 0);
    if (!alone.has_value()) return std::string(alone.error().message());
    if ((alone.value() == nullptr) != (color < 0)) return "split: a negative color gets null";
    if (alone.value() == nullptr) continue;
    if (alone.value()->size() != 1) return "split: alone is not alone";
    if (auto fault = sum_job_ranks(*alone.value(), 2, 9); !fault.empty()) return fault;
  }
  return "";
}

std::string groups_of_members(Communicator& world) {
  const int p = world.size();
  const int self = world.rank();
  // Each rank is in two pairs, of which it makes the one with the smaller rank first.
  for (const int first : {self - 1, self}) {
    if (first < 0 || first + 1 >= p) continue;
    auto pair = world.create_group(std::array{first + 1, first});
    if (!pair.has_value()) return std::string(pair.error().message());
    if (pair.value()->job_rank(0) != first + 1) return "create_group: the order is not obeyed";
    if (auto fault = sum_job_ranks(*pair.value(), 2, 70'000); !fault.empty()) return fault;
  }
  std::vector<int> reversed;
  for (int r = p - 1; r >= 0; --r) reversed.push_back(r);
  auto all = world.create_group(reversed, {.messages_only = true});
  if (!all.has_value()) return std::string(all.error().message());
  if (all.value()->shared_memory() != SharedMemory::kNone) return "messages_only shares memory";
  if (auto fault = sum_job_ranks(*all.value(), 2, 300); !fault.empty()) return fault;
  if (self > 0) {
    std::vector<int> tail;  // all but job rank 0, which is last here
    for (int r = 0; r + 1 < p; ++r) tail.push_back(r);
    auto part = all.value()->create_group(tail);
    if (!part.has_value()) return std::string(part.error().message());
    if (part.value()->size() != p - 1) return "create_group: the size is wrong";
    if (auto fault = sum_job_ranks(*part.value(), 2, 300); !fault.empty()) return fault;
  }
  const std::vector<std::vector<int>> bad{
      {}, {self, p}, {-1, self}, {self, self}, {(self + 1) % p}};
  for (const std::vector<int>& ranks : bad) {
    if (p == 1 && ranks == std::vector<int>{self}) continue;
    const auto refused = world.create_group(ranks);
    if (refused.has_value()) return "create_group: a bad list was taken";
    if (refused.error().code() != Code::kInvalidArgument) {
      return std::string(refused.error().message());
    }
  }
  return "";
}

// All but rank 0 call and let their group go; only then rank 0 calls.
std::string end_amid_operations(Communicator& world) {
  const int p = world.size();
  const int right = (world.rank() + 1) % p;
  const int left = (world.rank() + p - 1) % p;
  for (const std::size_t n : {std::size_t{5}, std::size_t{700'001}}) {
    auto part = world.split(0, world.rank());
    if (!part.has_value()) return std::string(part.error().message());
    const Floats out(n, static_cast<float>(world.rank()));
    Floats sum(n, 1.0f), in(n);
    std::vector<OpCall> calls{OpCall::recv(view_of(std::span(in)), left, 3),
                              OpCall::send(const_view_of(std::span(out)), right, 3)};
    if (p == 1) calls.clear();
    calls.push_back({.kind = OpKind::kAllReduce,
                     .in = view_of(std::span(sum)),
                     .out = view_of(std::span(sum))});
    if (world.rank() == 0) {
      if (const Status met = wait_for(world.barrier()); !met.ok())
        return std::string(met.message());
    }
    std::vector<Work> works;
    for (const OpCall& call : calls) {
      auto work = part.value()->start(call);
      if (!work.has_value()) return "a call: " + std::string(work.error().message());
      works.push_back(std::move(work).value());
    }
    part.value().reset();
    if (world.rank() != 0) {
      if (const Status met = wait_for(world.barrier()); !met.ok())
        return std::string(met.message());
    }
    // Nothing of it comes to the next group.
    auto next = world.split(0, world.rank());
    if (!next.has_value()) return std::string(next.error().message());
    if (auto fault = sum_job_ranks(*next.value(), 2, n); !fault.empty()) return "next: " + fault;
    for (Work& work : works) {
      if (const Status status = work.wait(); !status.ok()) {
        return "its communicator has ended: " + std::string(status.message());
      }
    }
    if (sum != Floats(n, static_cast<float>(p))) return "its communicator has ended: a wrong sum";
    if (p > 1 && in != Floats(n, static_cast<float>(left))) {
      return "its communicator has ended: another message";
    }
  }
  return "";
}

std::string many_outstanding(Communicator& world) {
  constexpr int kOperations = 300;
  std::vector<Floats> tensors;
  for (int k = 0; k < kOperations; ++k) {
    tensors.emplace_back(static_cast<std::size_t>(k * 37 % 500),
                         static_cast<float>(k + world.rank()));
  }
  std::vector<Work> works;
  for (Floats& tensor : tensors) {
    auto work = world.all_reduce(view_of(std::span(tensor)), ReduceOp::kMax);
    if (!work.has_value()) return std::string(work.error().message());
    works.push_back(std::move(work).value());
  }
  for (int k = kOperations - 1; k >= 0; --k) {
    const auto at = static_cast<std::size_t>(k);
    const Status status = works[at].wait();
    if (!status.ok()) return std::string(status.message());
    const Floats want(tensors[at].size(), static_cast<float>(k + world.size() - 1));
    if (tensors[at] != want) return format("operation %d: wrong maximum", k);
  }
  return "";
}

std::string refuse_bad_arguments(Communicator& world) {
  Floats data(8), more(3);
  std::vector<std::int32_t> whole(8);
  const auto tensor = view_of(std::span(data));
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(world.size()), 5);
  const std::vector<Status> refusals{
      world.all_reduce(tensor, ReduceOp::kSum, {.algorithm = "bruck", .deadline = {}, .stream = {}})
          .error(),
      world.all_reduce(view_of(std::span(whole)), ReduceOp::kMean).error(),
      world.broadcast(tensor, world.size()).error(),
      world.broadcast(tensor, -1).error(),
      world.all_gather(tensor, view_of(std::span(whole))).error(),
      world.reduce_scatter(tensor, view_of(std::span(more)), ReduceOp::kSum).error(),
      world.all_gather_v(tensor.bytes(), tensor.bytes(), lengths).error(),
      world.send(tensor, world.rank()).error(),
      world.recv(tensor, world.size()).error()};
  for (std::size_t i = 0; i < refusals.size(); ++i) {
    if (refusals[i].code() != Code::kInvalidArgument) return format("bad call %zu was taken", i);
  }
  // One bad call in a batch, and none of it starts: the numbers of operations stay together.
  const std::vector<OpCall> batch{
      {.kind = OpKind::kAllReduce, .in = tensor, .out = tensor},
      {.kind = OpKind::kReduce, .in = tensor, .out = tensor, .peer = world.size()}};
  if (world.rank() == 0 && world.start_all(batch).error().code() != Code::kInvalidArgument) {
    return "a batch with a bad call was taken";
  }
  // The same of messages: the next ones of the same tag meet each other.
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  for (const bool good : {false, true}) {
    Floats out(8, good ? 1.0f : -1.0f);
    const std::vector<OpCall> messages{
        OpCall::recv(tensor, before, 4), OpCall::send(view_of(std::span(out)), next, 4),
        OpCall::send(view_of(std::span(out)), good ? next : world.size(), 5),
        OpCall::recv(view_of(std::span(more)), before, good ? 5 : -1)};
    const auto calls = std::span(messages).first(good ? 2 : 4);
    const Status status = world.size() > 1 ? wait_for(world.start_all(calls)) : Status();
    if (!good && world.size() > 1 && status.code() != Code::kInvalidArgument) {
      return "a batch with a bad message was taken";
    }
    if (good && !status.ok()) return "after a bad batch: " + std::string(status.message());
    if (good && world.size() > 1 && data != out) return "a message of a refused batch came";
  }
  const Status unplanned =
      world.prepare({.kind = OpKind::kGather, .in = tensor, .peer = -1}).error();
  if (unplanned.code() != Code::kInvalidArgument) return "a bad call was planned";
  if (!world.status().ok()) return "a refused call finished the communicator";
  return sum_job_ranks(world, 1, 4);
}

std::string count_bytes(Communicator& world) {
  const int p = world.size();
  const std::uint64_t before = world.bytes_sent();
  OpOptions ring;
  ring.algorithm = "ring";
  Floats values(1001);
  for (int i = 0; i < 3; ++i) {
    const Status status =
        wait_for(world.all_reduce(view_of(std::span(values)), ReduceOp::kSum, ring));
    if (!status.ok()) return std::string(status.message());
  }
  const auto chunk = [&](int c) { return piece(1001, p, c % p).size(); };
  const int r = world.rank();
  const std::int64_t elems = p == 1 ? 0 : 2 * 1001 - chunk(r) - chunk(r + 1);
  const std::uint64_t want = 3 * 4 * static_cast<std::uint64_t>(elems);
  const std::uint64_t sent = world.bytes_sent() - before;
  if (sent != want) {
    return format("bytes_sent: %llu, %llu wanted", static_cast<unsigned long long>(sent),
                  static_cast<unsigned long long>(want));
  }
  if (world.transport_stats().bytes_sent < world.bytes_sent()) return "transport_stats are behind";
  return "";
}

}  // namespace gradwire
