// One operation, several ways to ask for it: in place and out of place, again and again, many at a
// time, many tensors as one, scaled first. Data are whole numbers whose sums are exact, so every
// answer is known whatever the algorithm.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/reference/collectives_reference.h"

namespace gradwire {
namespace {

using Floats = std::vector<float>;

Status wait_for(Result<Work> work) {
  if (!work.has_value()) return work.error();
  return work.value().wait();
}

std::string fault_of(const std::string& name, const Status& status, bool right) {
  if (!status.ok()) return name + ": " + std::string(status.message());
  return right ? "" : name + ": wrong contents";
}

TensorView floats(Floats& data) { return view_of(std::span(data)); }
ConstTensorView floats(const Floats& data) { return const_view_of(std::span(data)); }

// Element i of rank's data in test `salt`.
float value(int rank, int salt, std::int64_t i) {
  return static_cast<float>((i * 7 + rank * 31 + salt * 13) % 97 - 48);
}

Floats data_of(int rank, int salt, std::int64_t first, std::int64_t count) {
  Floats data;
  for (std::int64_t i = first; i < first + count; ++i) data.push_back(value(rank, salt, i));
  return data;
}

Floats sum_of(int size, int salt, std::int64_t first, std::int64_t count) {
  Floats sums(static_cast<std::size_t>(count));
  for (int r = 0; r < size; ++r) {
    const Floats theirs = data_of(r, salt, first, count);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += theirs[i];
  }
  return sums;
}

Floats all_rows(int size, int salt, std::int64_t n) {
  Floats rows;
  for (int r = 0; r < size; ++r) {
    const Floats theirs = data_of(r, salt, 0, n);
    rows.insert(rows.end(), theirs.begin(), theirs.end());
  }
  return rows;
}

std::string all_reduce_apart(Communicator& world, std::int64_t n) {
  const Floats in = data_of(world.rank(), 1, 0, n);
  Floats out(in.size(), -1);
  const Status status = wait_for(world.all_reduce(floats(in), floats(out), ReduceOp::kSum));
  const bool right = out == sum_of(world.size(), 1, 0, n) && in == data_of(world.rank(), 1, 0, n);
  return fault_of("all_reduce out of place", status, right);
}

std::string reduce_scatter_in_place(Communicator& world, std::int64_t n) {
  Floats data = data_of(world.rank(), 2, 0, n * world.size());
  const TensorView own = floats(data).slice(world.rank() * n, n);
  const Status status = wait_for(world.reduce_scatter(floats(data), own, ReduceOp::kSum));
  const auto first = data.begin() + world.rank() * n;
  const Floats want = sum_of(world.size(), 2, world.rank() * n, n);
  return fault_of("reduce_scatter in place", status, std::equal(want.begin(), want.end(), first));
}

std::string all_gather_in_place(Communicator& world, std::int64_t n) {
  Floats data(static_cast<std::size_t>(n * world.size()), -1);
  const Floats own = data_of(world.rank(), 3, 0, n);
  std::ranges::copy(own, data.begin() + world.rank() * n);
  const TensorView in = floats(data).slice(world.rank() * n, n);
  const Status status = wait_for(world.all_gather(in, floats(data)));
  return fault_of("all_gather in place", status, data == all_rows(world.size(), 3, n));
}

std::string all_to_all_in_place(Communicator& world, std::int64_t n) {
  const int p = world.size();
  Floats data = data_of(world.rank(), 4, 0, n * p);
  const Status status = wait_for(world.all_to_all(floats(data), floats(data)));
  Floats want;
  for (int r = 0; r < p; ++r) {
    const Floats theirs = data_of(r, 4, world.rank() * n, n);
    want.insert(want.end(), theirs.begin(), theirs.end());
  }
  return fault_of("all_to_all in place", status, data == want);
}

std::string broadcast_apart(Communicator& world, std::int64_t n) {
  const int root = world.size() - 1;
  const Floats in = data_of(root, 5, 0, n);
  Floats out(in.size(), -1);
  const ConstTensorView given = world.rank() == root ? floats(in) : ConstTensorView();
  const Status status = wait_for(world.broadcast(given, floats(out), root));
  return fault_of("broadcast out of place", status, out == in);
}

// Factors are powers of two, so products are exact.
std::string premultiplied(Communicator& world, std::int64_t n) {
  const auto factor_of = [](int r) { return r % 2 == 0 ? 0.5f : 2.0f; };
  const OpOptions options{.deadline = {}, .stream = {}, .factor = factor_of(world.rank())};
  Floats want(static_cast<std::size_t>(n * world.size()));
  for (int r = 0; r < world.size(); ++r) {
    const Floats theirs = data_of(r, 6, 0, n * world.size());
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += factor_of(r) * theirs[i];
  }
  const Floats in = data_of(world.rank(), 6, 0, n * world.size());
  Floats out(in.size());
  Status status =
      wait_for(world.all_reduce(floats(in), floats(out), ReduceOp::kPreMulSum, options));
  if (auto fault = fault_of("pre_mul_sum apart", status, out == want); !fault.empty()) return fault;
  out = in;
  status = wait_for(world.all_reduce(floats(out), ReduceOp::kPreMulSum, options));
  if (auto fault = fault_of("pre_mul_sum in place", status, out == want); !fault.empty()) {
    return fault;
  }
  Floats row(static_cast<std::size_t>(n));
  status = wait_for(world.reduce_scatter(floats(in), floats(row), ReduceOp::kPreMulSum, options));
  const bool right = std::equal(row.begin(), row.end(), want.begin() + world.rank() * n) &&
                     in == data_of(world.rank(), 6, 0, n * world.size());
  if (auto fault = fault_of("pre_mul_sum reduce_scatter", status, right); !fault.empty()) {
    return fault;
  }
  // Both under way: what is scaled of the one is not the other's.
  Floats negative(in);
  for (float& value : negative) value = -value;
  Floats other(row.size());
  const auto row_of = [&](const Floats& whole, Floats& to) {
    return world.reduce_scatter(floats(whole), floats(to), ReduceOp::kPreMulSum, options);
  };
  auto first = row_of(in, row);
  auto second = row_of(negative, other);
  status = wait_for(std::move(first));
  if (const Status next = wait_for(std::move(second)); status.ok()) status = next;
  for (float& value : other) value = -value;
  const bool both =
      std::equal(row.begin(), row.end(), want.begin() + world.rank() * n) && other == row;
  return fault_of("two pre_mul_sum reduce_scatters at a time", status, both);
}

}  // namespace

std::string work_in_place_and_apart(Communicator& world) {
  for (const std::int64_t n : {0, 1, 7, 1000, 70001}) {
    for (const auto law : {all_reduce_apart, reduce_scatter_in_place, all_gather_in_place,
                           all_to_all_in_place, broadcast_apart, premultiplied}) {
      if (auto fault = law(world, n); !fault.empty()) {
        return fault + format(" (n = %lld)", static_cast<long long>(n));
      }
    }
  }
  return "";
}

std::string run_again_and_again(Communicator& world) {
  constexpr std::int64_t kElems = 1003;
  Floats sums(kElems);
  const Floats mine = data_of(world.rank(), 0, 0, kElems);
  Floats rows(kElems * static_cast<std::size_t>(world.size()));
  auto reduce =
      world.prepare({.kind = OpKind::kAllReduce, .in = floats(sums), .out = floats(sums)});
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), kElems);
  auto gather = world.prepare({.kind = OpKind::kAllGatherV,
                               .in = floats(mine),
                               .out = floats(rows),
                               .counts = std::vector<std::int64_t>(counts)});
  if (!reduce.has_value()) return std::string(reduce.error().message());
  if (!gather.has_value()) return std::string(gather.error().message());
  for (int run = 0; run < 10; ++run) {
    std::ranges::copy(data_of(world.rank(), run, 0, kElems), sums.begin());  // the same memory
    std::ranges::fill(rows, -1.0f);
    auto reducing = reduce.value().start();
    auto gathering = gather.value().start();
    Status status = wait_for(std::move(gathering));
    if (auto fault =
            fault_of("a prepared all_gather_v", status, rows == all_rows(world.size(), 0, kElems));
        !fault.empty()) {
      return fault;
    }
    status = wait_for(std::move(reducing));
    if (auto fault =
            fault_of("a prepared all_reduce", status, sums == sum_of(world.size(), run, 0, kElems));
        !fault.empty()) {
      return fault;
    }
  }
  const Status late = world.prepare({}, {.deadline = deadline_in(1), .stream = {}}).error();
  return late.code() == Code::kInvalidArgument ? "" : "prepare: a deadline was taken";
}

// Two messages between every two ranks, one of floats and one of integers, and a reduction, listed
// in an order that would block if one had to be over before the next could begin.
std::string run_batches(Communicator& world) {
  const int p = world.size();
  const int me = world.rank();
  for (const std::int64_t n : {1, 300, 200000}) {
    std::vector<Floats> sent, received(static_cast<std::size_t>(p));
    std::vector<std::vector<std::int32_t>> tags(static_cast<std::size_t>(p));
    std::vector<std::int32_t> own_tag{me, -me};
    Floats sums = data_of(me, 9, 0, n);
    for (int r = 0; r < p; ++r) sent.push_back(data_of(me, r, 0, n + r));
    std::vector<OpCall> calls;
    for (int r = 0; r < p; ++r) {
      if (r == me) continue;
      const auto at = static_cast<std::size_t>(r);
      received[at].resize(static_cast<std::size_t>(n + me));
      tags[at].resize(2);
      calls.push_back(OpCall::recv(view_of(std::span(tags[at])), r));
      calls.push_back(OpCall::recv(floats(received[at]), r));
      calls.push_back(OpCall::send(floats(sent[at]), r));
      calls.push_back(OpCall::send(view_of(std::span(own_tag)), r));
    }
    // The k-th send meets the k-th recv: of the two to a peer, floats are sent first.
    for (std::size_t i = 0; i < calls.size(); i += 4) std::swap(calls[i], calls[i + 1]);
    if (me % 2 == 1) std::ranges::reverse(calls);
    if (me % 2 == 1) {
      for (std::size_t i = 0; i < calls.size(); i += 4) {
        std::swap(calls[i], calls[i + 1]);
        std::swap(calls[i + 2], calls[i + 3]);
      }
    }
    calls.push_back({.kind = OpKind::kAllReduce, .in = floats(sums), .out = floats(sums)});
    const Status status = wait_for(world.start_all(calls));
    bool right = sums == sum_of(p, 9, 0, n);
    for (int r = 0; r < p && status.ok(); ++r) {
      const auto at = static_cast<std::size_t>(r);
      if (r != me) right = right && received[at] == data_of(r, me, 0, n + me);
      if (r != me) right = right && tags[at] == std::vector<std::int32_t>{r, -r};
    }
    if (auto fault = fault_of("a batch", status, right); !fault.empty()) return fault;
  }
  const Status nothing = wait_for(world.start_all({}));
  return nothing.ok() ? "" : "an empty batch: " + std::string(nothing.message());
}

// R10: k tensors cost as many messages and bytes as one, and under `canonical` the same bits come
// out as from each alone. Awkward fractions here, so that the order of summation shows.
std::string reduce_fused(Communicator& world) {
  for (const int k : {0, 1, 3, 40}) {
    std::vector<std::vector<std::byte>> fused, alone;
    std::vector<TensorView> tensors;
    std::int64_t total = 0;
    for (int t = 0; t < k; ++t) {
      const std::int64_t elems = t * 37 % 101;
      fused.push_back(reference::inputs<DType::kF32>(world.rank(), total, elems));
      total += elems;
    }
    alone = fused;
    for (auto& bytes : fused) {
      const auto elems = static_cast<std::int64_t>(bytes.size() / sizeof(float));
      tensors.emplace_back(bytes.data(), Shape::vector(elems), DType::kF32);
    }
    const OpOptions canonical{.algorithm = "canonical", .deadline = {}, .stream = {}};
    const std::uint64_t before = world.bytes_sent();
    Status status = wait_for(world.all_reduce_fused(tensors, ReduceOp::kMean, canonical));
    if (!status.ok()) return "all_reduce_fused: " + std::string(status.message());
    const std::uint64_t cost = world.bytes_sent() - before;
    Floats one(static_cast<std::size_t>(total));
    status = wait_for(world.all_reduce(floats(one), ReduceOp::kMean, canonical));
    if (cost != world.bytes_sent() - before - cost) return "all_reduce_fused: more bytes than one";
    for (auto& bytes : alone) {
      const auto elems = static_cast<std::int64_t>(bytes.size() / sizeof(float));
      const TensorView tensor(bytes.data(), Shape::vector(elems), DType::kF32);
      status = wait_for(world.all_reduce(tensor, ReduceOp::kMean, canonical));
      if (!status.ok()) return "all_reduce: " + std::string(status.message());
    }
    if (fused != alone) return format("all_reduce_fused: other bits than %d all_reduces", k);
  }
  return "";
}

}  // namespace gradwire
