#include "tests/laws/communicator/shm_programs.h"

#include <cstring>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "tests/reference/collectives_reference.h"
#include "tests/support/short_run.h"

namespace gradwire {
namespace {

Status wait_for(Result<Work> work) {
  if (!work.has_value()) return work.error();
  return work.value().wait();
}

// Where a rank's tensors lie.
enum class Home { kPrivate, kShared, kOddPrivate, kOddShared, kMixed };
constexpr Home kHomes[] = {Home::kPrivate, Home::kShared, Home::kOddPrivate, Home::kOddShared,
                           Home::kMixed};

// Elements that live where `home` says; an odd one begins one element off a cache line.
class Memory {
 public:
  Memory(Communicator& world, Home home, DType dtype, std::int64_t elems)
      : dtype_(dtype), elems_(elems) {
    const bool odd = home == Home::kOddPrivate || home == Home::kOddShared;
    const bool shared = home == Home::kShared || home == Home::kOddShared ||
                        (home == Home::kMixed && world.rank() % 2 == 0);
    const std::size_t shift = odd ? size_of(dtype) : 0;
    const std::size_t bytes = static_cast<std::size_t>(elems) * size_of(dtype) + shift;
    if (shared) {
      shared_ = std::move(world.allocate(bytes)).value();
      data_ = shared_.bytes().data() + shift;
    } else {
      private_.resize(bytes);
      data_ = private_.data() + shift;
    }
  }
  TensorView view() const { return {data_, Shape::vector(elems_), dtype_}; }
  void set(const std::vector<std::byte>& bytes) {
    if (!bytes.empty()) std::memcpy(data_, bytes.data(), bytes.size());
  }
  bool is(const std::vector<std::byte>& bytes) const {
    return bytes.empty() || std::memcmp(data_, bytes.data(), bytes.size()) == 0;
  }

 private:
  DType dtype_;
  std::int64_t elems_;
  Buffer shared_;
  std::vector<std::byte> private_;
  std::byte* data_ = nullptr;
};

// Elements [first, first + count) of all ranks, folded in rank order and rounded once.
template <DType kType>
std::vector<std::byte> folded(ReduceOp op, int size, std::int64_t first, std::int64_t count) {
  using E = reference::Element<kType>;
  using Stored = typename E::Stored;
  using Computed = typename E::Computed;
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * sizeof(Stored));
  for (std::int64_t i = 0; i < count; ++i) {
    Computed sum = E::widen(reference::input<kType>(0, first + i));
    for (int r = 1; r < size; ++r) {
      const Computed next = E::widen(reference::input<kType>(r, first + i));
      if (op == ReduceOp::kProduct) {
        sum = static_cast<Computed>(sum * next);
      } else if (op == ReduceOp::kMax) {
        sum = sum < next ? next : sum;
      } else if (op == ReduceOp::kMin) {
        sum = next < sum ? next : sum;
      } else {
        sum = static_cast<Computed>(sum + next);
      }
    }
    if constexpr (reference::is_floating<kType>()) {
      if (op == ReduceOp::kMean && size > 1) sum *= static_cast<Computed>(1.0 / size);
    }
    const Stored stored = E::narrow(sum);
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(Stored), &stored,
                sizeof(Stored));
  }
  return bytes;
}

template <DType kType>
std::string text_of(ReduceOp op, Home home, std::int64_t elems) {
  return format(" of %lld %s, op %d, home %d", static_cast<long long>(elems),
                std::string(to_string(kType)).c_str(), static_cast<int>(op),
                static_cast<int>(home));
}

template <DType kType>
std::string check_all_reduce(Communicator& world, ReduceOp op, Home home, std::int64_t elems) {
  const std::string what = text_of<kType>(op, home, elems);
  Memory tensor(world, home, kType, elems);
  tensor.set(reference::inputs<kType>(world.rank(), 0, elems));
  const Status status = wait_for(world.all_reduce(tensor.view(), op));
  if (!status.ok()) return "all_reduce" + what + ": " + std::string(status.message());
  if (tensor.is(folded<kType>(op, world.size(), 0, elems))) return "";
  return "all_reduce" + what + ": wrong contents";
}

template <DType kType>
std::string check_reduce_scatter(Communicator& world, ReduceOp op, Home home, std::int64_t elems) {
  const int p = world.size();
  const std::string what = text_of<kType>(op, home, elems);
  const std::vector<std::byte> rows = reference::inputs<kType>(world.rank(), 0, p * elems);
  Memory in(world, home, kType, p * elems);
  Memory out(world, home, kType, elems);
  in.set(rows);
  const Status status = wait_for(world.reduce_scatter(in.view(), out.view(), op));
  if (!status.ok()) return "reduce_scatter" + what + ": " + std::string(status.message());
  if (!in.is(rows)) return "reduce_scatter" + what + ": changed its input";
  if (!out.is(folded<kType>(op, p, world.rank() * elems, elems))) {
    return "reduce_scatter" + what + ": wrong contents";
  }
  return "";
}

template <DType kType>
std::string check(Communicator& world, ReduceOp op, Home home, std::int64_t elems) {
  if (auto f = check_all_reduce<kType>(world, op, home, elems); !f.empty()) return f;
  return check_reduce_scatter<kType>(world, op, home, elems);
}

template <DType kType>
std::string check_type(Communicator& world) {
  const int p = world.size();
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct}) {
    if (op == ReduceOp::kMean && !reference::is_floating<kType>()) continue;
    for (const std::int64_t elems : {0, 1, p - 1, p + 1, 997}) {
      if (auto fault = check<kType>(world, op, Home::kPrivate, elems); !fault.empty()) return fault;
    }
  }
  // Too large for the small way.
  const auto elems = static_cast<std::int64_t>(40'011 / size_of(kType));
  for (const Home home : kHomes) {
    if (auto f = check<kType>(world, ReduceOp::kSum, home, elems); !f.empty()) return f;
  }
  if (!reference::is_floating<kType>()) return "";
  return check<kType>(world, ReduceOp::kMean, Home::kPrivate, elems);
}

std::vector<std::byte> numbered(int from, std::int64_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * 4);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<std::int32_t>(from * 10'000'000 + i);
    std::memcpy(bytes.data() + i * 4, &value, 4);
  }
  return bytes;
}

std::string move(Communicator& world, Home in_home, Home out_home, std::int64_t n) {
  const int p = world.size();
  std::vector<std::byte> gathered;
  std::vector<std::byte> exchanged;
  for (int q = 0; q < p; ++q) {
    const auto theirs = numbered(q, p * n);
    const std::ptrdiff_t row = n * 4;
    gathered.insert(gathered.end(), theirs.begin(), theirs.begin() + row);
    exchanged.insert(exchanged.end(), theirs.begin() + world.rank() * row,
                     theirs.begin() + (world.rank() + 1) * row);
  }
  Memory in(world, in_home, DType::kI32, p * n);
  in.set(numbered(world.rank(), p * n));
  Memory out(world, out_home, DType::kI32, p * n);
  const std::string what = format(" (homes %d, %d, n = %lld)", static_cast<int>(in_home),
                                  static_cast<int>(out_home), static_cast<long long>(n));
  Status status = wait_for(world.all_gather(in.view().slice(0, n), out.view()));
  if (!status.ok()) return std::string(status.message()) + what;
  if (!out.is(gathered)) return "all_gather: wrong contents" + what;
  status = wait_for(world.all_to_all(in.view(), out.view()));
  if (!status.ok()) return std::string(status.message()) + what;
  if (!out.is(exchanged)) return "all_to_all: wrong contents" + what;
  for (int root = 0; root < p; ++root) {
    out.set(numbered(world.rank(), p * n));
    status = wait_for(world.broadcast(out.view(), root));
    if (!status.ok()) return std::string(status.message()) + what;
    if (!out.is(numbered(root, p * n))) return "broadcast: wrong contents" + what;
  }
  return "";
}

std::string check_reduce(Communicator& world, Home home, std::int64_t elems, int root,
                         bool in_place) {
  constexpr DType kType = DType::kF16;
  const std::string what = text_of<kType>(ReduceOp::kSum, home, elems) + format(", root %d", root);
  const auto mine = reference::inputs<kType>(world.rank(), 0, elems);
  Memory in(world, home, kType, elems);
  Memory apart(world, home, kType, elems);
  in.set(mine);
  Memory& out = in_place ? in : apart;
  const bool at_root = world.rank() == root;
  const Status status =
      wait_for(world.reduce(in.view(), at_root ? out.view() : TensorView(), ReduceOp::kSum, root));
  if (!status.ok()) return "reduce" + what + ": " + std::string(status.message());
  if (at_root && !out.is(folded<kType>(ReduceOp::kSum, world.size(), 0, elems))) {
    return "reduce" + what + ": wrong contents";
  }
  return (at_root && in_place) || in.is(mine) ? "" : "reduce" + what + ": changed its input";
}

// Rank r's row has r % 3 * elems elements and one more.
std::vector<std::int64_t> unequal(int size, std::int64_t elems) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(r % 3 * elems + 1);
  return counts;
}

std::int64_t sum_before(const std::vector<std::int64_t>& counts, int rank) {
  std::int64_t sum = 0;
  for (int r = 0; r < rank; ++r) sum += counts[static_cast<std::size_t>(r)];
  return sum;
}

std::string check_rows_and_scan(Communicator& world, Home home, std::int64_t elems) {
  constexpr DType kType = DType::kF32;
  constexpr ReduceOp kOp = ReduceOp::kMax;
  const std::string what = text_of<kType>(kOp, home, elems);
  const int me = world.rank();
  const auto counts = unequal(world.size(), elems);
  const std::int64_t all = sum_before(counts, world.size());
  const std::int64_t own = counts[static_cast<std::size_t>(me)];
  Memory in(world, home, kType, all);
  Memory out(world, home, kType, own);
  in.set(reference::inputs<kType>(me, 0, all));
  Status status = wait_for(world.reduce_scatter_v(in.view(), out.view(), counts, kOp));
  if (!status.ok()) return "reduce_scatter_v" + what + ": " + std::string(status.message());
  if (!out.is(folded<kType>(kOp, world.size(), sum_before(counts, me), own))) {
    return "reduce_scatter_v" + what + ": wrong contents";
  }
  Memory scanned(world, home, kType, all);
  for (const bool in_place : {false, true}) {
    Memory& to = in_place ? in : scanned;
    status = wait_for(world.exclusive_scan(in.view(), to.view(), kOp));
    if (!status.ok()) return "exclusive_scan" + what + ": " + std::string(status.message());
    if (me > 0 && !to.is(folded<kType>(kOp, me, 0, all))) {
      return "exclusive_scan" + what + ": wrong contents";
    }
  }
  return "";
}

std::string check_rooted(Communicator& world, Home home, std::int64_t n, int root, bool even) {
  const int p = world.size();
  const int me = world.rank();
  const auto counts =
      even ? std::vector<std::int64_t>(static_cast<std::size_t>(p), n) : unequal(p, n);
  const std::int64_t all = sum_before(counts, p);
  const std::int64_t own = counts[static_cast<std::size_t>(me)];
  const std::string what = format(" (home %d, n = %lld, root %d)", static_cast<int>(home),
                                  static_cast<long long>(n), root);
  std::vector<std::byte> rows;  // the first elements of every rank
  for (int q = 0; q < p; ++q) {
    const auto theirs = numbered(q, counts[static_cast<std::size_t>(q)]);
    rows.insert(rows.end(), theirs.begin(), theirs.end());
  }
  Memory row(world, home, DType::kI32, own);
  Memory table(world, home, DType::kI32, all);
  row.set(numbered(me, own));
  const TensorView at_root = me == root ? table.view() : TensorView();
  Status status = wait_for(even ? world.gather(row.view(), at_root, root)
                                : world.gather_v(row.view(), at_root, counts, root));
  if (!status.ok()) return "gather: " + std::string(status.message()) + what;
  if (me == root && !table.is(rows)) return "gather: wrong contents" + what;
  row.set(std::vector<std::byte>(static_cast<std::size_t>(own) * 4));
  status = wait_for(even ? world.scatter(at_root, row.view(), root)
                         : world.scatter_v(at_root, row.view(), counts, root));
  if (!status.ok()) return "scatter: " + std::string(status.message()) + what;
  return row.is(numbered(me, own)) ? "" : "scatter: wrong contents" + what;
}

}  // namespace

std::string shares_memory(Communicator& world) {
  if (world.size() == 1) return "";
  const std::string text = world.describe();
  return text.find("in shared memory") != std::string::npos ? "" : "shares nothing: " + text;
}

std::string reduce_in_rank_order(Communicator& world) {
  std::string fault;
  const auto take = [&](std::string found) {
    if (fault.empty()) fault = std::move(found);
  };
  take(check_type<DType::kF64>(world));
  take(check_type<DType::kF32>(world));
  take(check_type<DType::kF16>(world));
  take(check_type<DType::kBF16>(world));
  take(check_type<DType::kI64>(world));
  take(check_type<DType::kI32>(world));
  take(check_type<DType::kI8>(world));
  take(check_type<DType::kU8>(world));
  return fault;
}

std::string reduce_large_in_rank_order(Communicator& world) {
  // Every slot is used again.
  for (const Home home : {Home::kPrivate, Home::kMixed}) {
    if (auto f = check_all_reduce<DType::kF32>(world, ReduceOp::kSum, home, 600'001); !f.empty()) {
      return f;
    }
  }
  constexpr auto kMax = ReduceOp::kMax;
  if (auto f = check_reduce_scatter<DType::kF32>(world, kMax, Home::kPrivate, 200'001); !f.empty())
    return f;
  // Past the caches.
  return check_all_reduce<DType::kF32>(world, ReduceOp::kMean, Home::kShared, 2'200'001);
}

std::string move_shared_tensors(Communicator& world) {
  ShortRun large(2);
  for (const std::int64_t n : {0, 3, 9001, 150'001}) {
    for (const Home in : kHomes) {
      if (n > 10'000 && !large.takes()) continue;
      const Home out = in == Home::kMixed ? Home::kOddShared : in;
      if (auto fault = move(world, in, out, n); !fault.empty()) return fault;
    }
    if (auto fault = move(world, Home::kShared, Home::kPrivate, n); !fault.empty()) return fault;
  }
  return "";
}

std::string reduce_in_memory(Communicator& world) {
  ShortRun large(2, 1);
  for (const std::int64_t elems : {0, 5, 3001, 700'001}) {
    for (const Home home : kHomes) {
      if (elems > 10'000 && !large.takes()) continue;
      for (int root = 0; root < world.size(); ++root) {
        if (elems > 10'000 && root != world.size() / 2) continue;
        auto fault = check_reduce(world, home, elems, root, root % 2 == 0);
        if (!fault.empty()) return fault;
      }
      if (auto f = check_rows_and_scan(world, home, elems / 4); !f.empty()) return f;
    }
  }
  return "";
}

std::string move_to_and_from_root(Communicator& world) {
  ShortRun large(2);
  for (const std::int64_t n : {0, 7, 9001, 200'001}) {
    for (const Home home : kHomes) {
      if (n > 10'000 && !large.takes()) continue;
      for (int root = 0; root < world.size(); ++root) {
        if (n > 10'000 && root != world.size() / 2) continue;
        for (const bool even : {true, false}) {
          auto fault = check_rooted(world, home, n, root, even);
          if (!fault.empty()) return fault;
        }
      }
    }
  }
  return "";
}

// Small: every other rank reads everything. Large: 2 (p - 1) / p of it, but for whole cache lines.
std::string sizes_side_by_side(Communicator& world) {
  constexpr std::size_t kSizes[] = {3'000'000, 100'000, 500, 2'000'000, 60'000, 1};
  std::vector<std::vector<float>> tensors;
  std::vector<Work> works;
  for (int round = 0; round < 5; ++round) {
    for (const std::size_t elems : kSizes) {
      tensors.emplace_back(elems, static_cast<float>(tensors.size() + 1));
    }
    for (std::size_t i = works.size(); i < tensors.size(); ++i) {
      auto work = world.all_reduce(view_of(std::span(tensors[i])), ReduceOp::kSum);
      if (!work.has_value()) return "start: " + std::string(work.error().message());
      works.push_back(std::move(work).value());
    }
    const Status small = works.back().wait();
    if (!small.ok()) return "small: " + std::string(small.message());
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Status status = works[i].wait();
    if (!status.ok()) return "wait: " + std::string(status.message());
    const auto sum = static_cast<float>(i + 1) * static_cast<float>(world.size());
    if (tensors[i] != std::vector<float>(tensors[i].size(), sum)) return "wrong sum";
  }
  return "";
}

std::string count_shared_bytes(Communicator& world) {
  const auto p = static_cast<std::uint64_t>(world.size());
  for (const std::uint64_t elems : {100u, 160'000u}) {
    std::vector<float> data(elems);
    const std::uint64_t before = world.bytes_sent();
    if (const Status status = wait_for(world.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
        !status.ok()) {
      return std::string(status.message());
    }
    const std::uint64_t sent = world.bytes_sent() - before;
    const std::uint64_t bytes = elems * sizeof(float);
    const std::uint64_t want = elems == 100 ? (p - 1) * bytes : 2 * (p - 1) * bytes / p;
    const std::uint64_t slack = elems == 100 ? 0 : p * 64;
    if (sent + slack < want || sent > want + slack) {
      return format("bytes_sent: %llu, %llu wanted", static_cast<unsigned long long>(sent),
                    static_cast<unsigned long long>(want));
    }
  }
  if (world.transport_stats().bytes_sent < world.bytes_sent()) return "transport_stats are behind";
  return "";
}

}  // namespace gradwire
