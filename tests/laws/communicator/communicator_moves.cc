#include <cstddef>
#include <string>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "tests/laws/communicator/communicator_programs.h"

namespace gradwire {
namespace {

using Ints = std::vector<std::int32_t>;
using Bytes = std::vector<std::byte>;

Status wait_for(Result<Work> work) {
  if (!work.has_value()) return work.error();
  return work.value().wait();
}

std::string fault_of(const char* name, const Status& status, bool right) {
  if (!status.ok()) return std::string(name) + ": " + std::string(status.message());
  return right ? "" : std::string(name) + ": wrong contents";
}

TensorView ints(Ints& data) { return view_of(std::span(data)); }
ConstTensorView ints(const Ints& data) { return const_view_of(std::span(data)); }

// Element i of what rank `from` has for rank `to`.
std::int32_t value(int from, int to, std::int64_t i) {
  return static_cast<std::int32_t>(from * 1000000 + to * 1000 + i % 1000);
}

Ints block(int from, int to, std::int64_t count) {
  Ints data;
  for (std::int64_t i = 0; i < count; ++i) data.push_back(value(from, to, i));
  return data;
}

std::string gather_blocks(Communicator& world, std::int64_t n) {
  const Ints in = block(world.rank(), 0, n);
  Ints out(static_cast<std::size_t>(n * world.size()));
  Ints want;
  for (int r = 0; r < world.size(); ++r) {
    const Ints theirs = block(r, 0, n);
    want.insert(want.end(), theirs.begin(), theirs.end());
  }
  const Status status = wait_for(world.all_gather(ints(in), ints(out)));
  return fault_of("all_gather", status, out == want);
}

Bytes bytes_of(int from, int to, std::int64_t count) {
  Bytes data(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<std::byte>((static_cast<std::size_t>(from * 31 + to * 7) + i * 3) & 0xff);
  }
  return data;
}

void append(Bytes& to, const Bytes& from) { to.insert(to.end(), from.begin(), from.end()); }

// unit: bytes of a usual row; row 1 of every rank is empty.
std::int64_t length(int from, int to, std::int64_t unit) {
  return from == 1 ? 0 : unit * (1 + (from + 2 * to) % 3) + from;
}

std::string gather_unequal(Communicator& world, std::int64_t unit) {
  const int me = world.rank();
  std::vector<std::int64_t> lengths;
  Bytes want;
  for (int r = 0; r < world.size(); ++r) {
    lengths.push_back(length(r, 0, unit));
    append(want, bytes_of(r, 0, lengths.back()));
  }
  const Bytes in = bytes_of(me, 0, length(me, 0, unit));
  Bytes out(want.size());
  const Status status = wait_for(world.all_gather_v(in, out, lengths));
  if (auto fault = fault_of("all_gather_v", status, out == want); !fault.empty()) return fault;
  Bytes unsized;
  std::vector<std::int64_t> found;
  const Status again = wait_for(world.all_gather_unsized(in, unsized, found));
  return fault_of("all_gather_unsized", again, unsized == want && found == lengths);
}

std::string exchange_blocks(Communicator& world, std::int64_t n) {
  Ints in, want;
  for (int r = 0; r < world.size(); ++r) {
    const Ints to = block(world.rank(), r, n);
    const Ints from = block(r, world.rank(), n);
    in.insert(in.end(), to.begin(), to.end());
    want.insert(want.end(), from.begin(), from.end());
  }
  Ints out(in.size());
  const Status status = wait_for(world.all_to_all(ints(std::as_const(in)), ints(out)));
  return fault_of("all_to_all", status, out == want);
}

std::string exchange_unequal(Communicator& world, std::int64_t unit) {
  std::vector<std::int64_t> send, recv;
  Bytes in, want;
  const int me = world.rank();
  for (int r = 0; r < world.size(); ++r) {
    send.push_back(length(me, r, unit));
    recv.push_back(length(r, me, unit));
    append(in, bytes_of(me, r, send.back()));
    append(want, bytes_of(r, me, recv.back()));
  }
  Bytes out(want.size());
  const Status status = wait_for(world.all_to_all_v(in, send, out, recv));
  return fault_of("all_to_all_v", status, out == want);
}

std::string broadcast_from_all(Communicator& world, std::int64_t n) {
  for (int root = 0; root < world.size(); ++root) {
    const Ints want = block(root, root, n);
    Ints data = world.rank() == root ? want : Ints(want.size(), -1);
    const Status status = wait_for(world.broadcast(ints(data), root));
    if (auto fault = fault_of("broadcast", status, data == want); !fault.empty()) return fault;
  }
  return "";
}

// Two messages to the next rank around a collective; the k-th send meets the k-th receive.
std::string pass_along(Communicator& world, std::int64_t n) {
  const int p = world.size();
  if (p == 1) return "";
  const int next = (world.rank() + 1) % p;
  const int prev = (world.rank() + p - 1) % p;
  const Ints first = block(world.rank(), next, n);
  const Ints second = block(world.rank(), next, n + 1);
  Ints got_first(first.size()), got_second(second.size());
  auto recv_first = world.recv(ints(got_first), prev);
  auto barrier = world.barrier();
  auto recv_second = world.recv(ints(got_second), prev);
  auto send_first = world.send(ints(first), next);
  auto send_second = world.send(ints(second), next);
  for (Result<Work>* work : {&send_second, &recv_second, &send_first, &barrier, &recv_first}) {
    const Status status = work->has_value() ? work->value().wait() : work->error();
    if (!status.ok()) return fault_of("send and recv", status, false);
  }
  const bool right =
      got_first == block(prev, world.rank(), n) && got_second == block(prev, world.rank(), n + 1);
  return fault_of("send and recv", {}, right);
}

std::string move_all(Communicator& world, std::int64_t n) {
  if (auto fault = gather_blocks(world, n); !fault.empty()) return fault;
  if (auto fault = gather_unequal(world, n); !fault.empty()) return fault;
  if (auto fault = exchange_blocks(world, n); !fault.empty()) return fault;
  if (auto fault = exchange_unequal(world, n); !fault.empty()) return fault;
  if (auto fault = broadcast_from_all(world, n); !fault.empty()) return fault;
  return pass_along(world, n);
}

}  // namespace

std::string move_everything(Communicator& world) {
  for (const std::int64_t n : {0, 1, 5, 1000}) {
    if (auto fault = move_all(world, n); !fault.empty()) {
      return fault + format(" (n = %lld)", static_cast<long long>(n));
    }
  }
  return fault_of("barrier", wait_for(world.barrier()), true);
}

std::string move_large(Communicator& world) { return move_all(world, 400001); }

}  // namespace gradwire
