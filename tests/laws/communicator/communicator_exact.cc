// The product of operations, algorithms, types, reductions and odd counts, in place and apart.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/small_floats.h"
#include "base/text.h"
#include "collectives/schedules/selection.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/reference/exact_data.h"

namespace gradwire {
namespace {

using Bytes = std::vector<std::byte>;
using Counts = std::vector<std::int64_t>;

constexpr std::array kTypes{DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
                            DType::kI64, DType::kI32, DType::kI8,  DType::kU8};
constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kMean,    ReduceOp::kMax,
                          ReduceOp::kMin, ReduceOp::kProduct, ReduceOp::kPreMulSum};

struct Case {
  OpKind kind;
  std::string_view algorithm;
  DType dtype;
  ReduceOp op;
  std::int64_t elems = 0;  // of the whole tensor, roughly where there are rows
  int root = 0;
  bool in_place = false;
  bool exact_means = true;
};

std::string text_of(const Case& one) {
  return std::string(to_string(one.kind)) + " by " + std::string(one.algorithm) +
         format(" of %lld ", static_cast<long long>(one.elems)) +
         std::string(to_string(one.dtype)) + ", " + std::string(to_string(one.op)) +
         format(", root %d, %s", one.root, one.in_place ? "in place" : "apart");
}

// What one rank gives to a case and should get. No `want`: its contents are nobody's business.
struct Part {
  Bytes in;
  std::optional<Bytes> want;
  std::size_t out_bytes = 0;
  std::size_t begin = 0;  // in place: of the smaller one in the larger one, in bytes
};

// A rank's memory: `in` and `out` apart, or the smaller one inside the larger.
class Memory {
 public:
  Memory(const Part& part, bool in_place) : in_(part.in), out_(part.out_bytes, std::byte{0x5a}) {
    shared_ = in_place && !in_.empty() && !out_.empty();
    begin_ = part.begin;
    if (shared_ && in_.size() < out_.size()) {
      std::ranges::copy(in_, out_.begin() + static_cast<std::ptrdiff_t>(begin_));
    }
  }
  std::byte* in() {
    return shared_ && in_.size() < out_.size() ? out_.data() + begin_ : in_.data();
  }
  std::byte* out() {
    return shared_ && in_.size() >= out_.size() ? in_.data() + begin_ : out_.data();
  }
  bool shared() const { return shared_; }
  std::size_t in_bytes() const { return in_.size(); }
  std::size_t out_bytes() const { return out_.size(); }

 private:
  Bytes in_, out_;
  bool shared_ = false;
  std::size_t begin_ = 0;
};

double number_of(DType dtype, const std::byte* at) {
  std::uint16_t half = 0;
  float single = 0;
  double wide = 0;
  std::memcpy(&half, at, sizeof half);
  if (dtype == DType::kF16) return static_cast<double>(float_from_fp16(half));
  if (dtype == DType::kBF16) return static_cast<double>(float_from_bf16(half));
  if (dtype == DType::kF32) std::memcpy(&single, at, sizeof single);
  if (dtype == DType::kF32) return static_cast<double>(single);
  std::memcpy(&wide, at, sizeof wide);
  return wide;
}

double half_ulp_of_one(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 0x1p-53;
    case DType::kF32: return 0x1p-24;
    case DType::kF16: return 0x1p-11;
    default: return 0x1p-8;  // of bf16
  }
}

// Whether the means are those of `part` but for the rounding of the factor, of each rank's product,
// and of each sum: 3 ranks' worth of halves of a unit in the last place of the largest number.
bool about(DType dtype, int ranks, const Part& part, const std::byte* means) {
  const std::size_t width = size_of(dtype);
  double largest = 0;
  for (const Bytes* const numbers : {&part.in, &*part.want}) {
    for (std::size_t at = 0; at < numbers->size(); at += width) {
      largest = std::max(largest, std::abs(number_of(dtype, numbers->data() + at)));
    }
  }
  const double bound = 3 * ranks * half_ulp_of_one(dtype) * largest;
  for (std::size_t at = 0; at < part.want->size(); at += width) {
    const double off = number_of(dtype, part.want->data() + at) - number_of(dtype, means + at);
    if (!(std::abs(off) <= bound)) return false;
  }
  return true;
}

std::string run_case(Communicator& world, const Case& one, const Part& part,
                     const Counts& counts = {}, const Counts& recv_counts = {}) {
  Memory memory(part, one.in_place);
  const auto view = [&](std::byte* data, std::size_t bytes) {
    return TensorView(data, Shape::vector(static_cast<std::int64_t>(bytes / size_of(one.dtype))),
                      one.dtype);
  };
  OpOptions options{.algorithm = one.algorithm, .deadline = {}, .stream = {}};
  if (one.op == ReduceOp::kPreMulSum) options.factor = reference::exact_factor(world.rank());
  auto work = world.start({.kind = one.kind,
                           .in = view(memory.in(), memory.in_bytes()),
                           .out = view(memory.out(), memory.out_bytes()),
                           .op = one.op,
                           .peer = one.root,
                           .counts = counts,
                           .recv_counts = recv_counts},
                          options);
  const Status status = work.has_value() ? work.value().wait() : work.error();
  if (!status.ok()) return text_of(one) + ": " + std::string(status.message());
  const bool rounded = one.op == ReduceOp::kMean && !one.exact_means;
  const auto right = [&] {
    if (rounded) return about(one.dtype, world.size(), part, memory.out());
    return std::equal(part.want->begin(), part.want->end(), memory.out());
  };
  if (part.want && !right()) return text_of(one) + ": wrong contents";
  const bool kept = memory.shared() || std::equal(part.in.begin(), part.in.end(), memory.in());
  return kept ? "" : text_of(one) + ": the input has changed";
}

std::int64_t before(const Counts& counts, int rank) {
  std::int64_t sum = 0;
  for (int r = 0; r < rank; ++r) sum += counts[static_cast<std::size_t>(r)];
  return sum;
}

// Rows that add up to about `elems`: equal ones, or of lengths that differ, with an empty one.
Counts rows_of(std::int64_t elems, int p, bool even) {
  Counts counts;
  const std::int64_t row = elems / p;
  for (int r = 0; r < p; ++r) {
    counts.push_back(even ? row : r % 5 == 1 ? 0 : row / 2 + (row * (r % 3)) / 2 + r % 2);
  }
  return counts;
}

// all_reduce, reduce, exclusive_scan.
std::string reduce_whole(Communicator& world, const Case& one) {
  const int p = world.size();
  const int me = world.rank();
  const bool scan = one.kind == OpKind::kExclusiveScan;
  if (scan && one.op == ReduceOp::kMean) return "";
  Part part{.in = reference::exact_inputs(one.dtype, one.op, me, 0, one.elems), .want = {}};
  if (one.kind == OpKind::kReduce && me != one.root) return run_case(world, one, part);
  part.out_bytes = part.in.size();
  if (!scan) part.want = reference::exact_answers(one.dtype, one.op, p, p, 0, one.elems);
  if (scan && me > 0) part.want = reference::exact_answers(one.dtype, one.op, me, p, 0, one.elems);
  if (scan && me == 0 && (one.op == ReduceOp::kSum || one.op == ReduceOp::kPreMulSum)) {
    part.want = Bytes(part.in.size());  // zeros
  }
  return run_case(world, one, part);
}

// reduce_scatter(_v).
std::string reduce_rows(Communicator& world, const Case& one) {
  const int p = world.size();
  const bool even = one.kind == OpKind::kReduceScatter;
  const Counts counts = rows_of(one.elems, p, even);
  const std::size_t width = size_of(one.dtype);
  const std::int64_t begin = before(counts, world.rank());
  const std::int64_t own = counts[static_cast<std::size_t>(world.rank())];
  const std::int64_t all = before(counts, p);
  const Part part{.in = reference::exact_inputs(one.dtype, one.op, world.rank(), 0, all),
                  .want = reference::exact_answers(one.dtype, one.op, p, p, begin, own),
                  .out_bytes = static_cast<std::size_t>(own) * width,
                  .begin = static_cast<std::size_t>(begin) * width};
  return run_case(world, one, part, even ? Counts() : counts);
}

// What rank `from` has for rank `to`: any numbers that tell them apart.
Bytes row_from(const Case& one, int from, int to, std::int64_t count) {
  return reference::exact_inputs(one.dtype, ReduceOp::kMax, from, to * 37, count);
}

void append(Bytes& to, const Bytes& from) { to.insert(to.end(), from.begin(), from.end()); }

// all_gather(_v), gather(_v).
std::string gather_rows(Communicator& world, const Case& one) {
  const int p = world.size();
  const int me = world.rank();
  const bool even = one.kind == OpKind::kAllGather || one.kind == OpKind::kGather;
  const bool rooted = one.kind == OpKind::kGather || one.kind == OpKind::kGatherV;
  const Counts counts = rows_of(one.elems, p, even);
  const auto row = [&](int r) { return row_from(one, r, 0, counts[static_cast<std::size_t>(r)]); };
  Part part{.in = row(me), .want = {}};
  part.begin = static_cast<std::size_t>(before(counts, me)) * size_of(one.dtype);
  if (!rooted || me == one.root) {
    part.want.emplace();
    for (int r = 0; r < p; ++r) append(*part.want, row(r));
    part.out_bytes = part.want->size();
  }
  return run_case(world, one, part, even ? Counts() : counts);
}

// scatter(_v).
std::string scatter_rows(Communicator& world, const Case& one) {
  const int p = world.size();
  const int me = world.rank();
  const bool even = one.kind == OpKind::kScatter;
  const Counts counts = rows_of(one.elems, p, even);
  const auto row = [&](int r) {
    return row_from(one, one.root, r, counts[static_cast<std::size_t>(r)]);
  };
  Part part{.in = {}, .want = row(me)};
  for (int r = 0; r < p && me == one.root; ++r) append(part.in, row(r));
  part.out_bytes = part.want->size();
  part.begin = static_cast<std::size_t>(before(counts, me)) * size_of(one.dtype);
  return run_case(world, one, part, even ? Counts() : counts);
}

// all_to_all(_v). In place every pair sends one another as much.
std::string exchange_rows(Communicator& world, const Case& one) {
  const int p = world.size();
  const int me = world.rank();
  const bool even = one.kind == OpKind::kAllToAll;
  const std::int64_t row = one.elems / p;
  const auto length = [&](int from, int to) {
    if (even) return row;
    return one.in_place ? row * ((from + to) % 3) : row * ((from + 2 * to) % 3) + from % 2;
  };
  Part part{.in = {}, .want = Bytes()};
  Counts send, recv;
  for (int r = 0; r < p; ++r) {
    send.push_back(length(me, r));
    recv.push_back(length(r, me));
    append(part.in, row_from(one, me, r, send.back()));
    append(*part.want, row_from(one, r, me, recv.back()));
  }
  part.out_bytes = part.want->size();
  return even ? run_case(world, one, part) : run_case(world, one, part, send, recv);
}

std::string broadcast_whole(Communicator& world, const Case& one) {
  Part part{.in = {}, .want = row_from(one, one.root, 0, one.elems)};
  if (world.rank() == one.root) part.in = *part.want;
  part.out_bytes = part.want->size();
  return run_case(world, one, part);
}

struct Law {
  OpKind kind;
  OpKind collective;
  std::string (*check)(Communicator& world, const Case& one);
  bool counted = false;
};

constexpr std::array kReductions{
    Law{OpKind::kAllReduce, OpKind::kAllReduce, reduce_whole},
    Law{OpKind::kReduce, OpKind::kReduce, reduce_whole},
    Law{OpKind::kExclusiveScan, OpKind::kExclusiveScan, reduce_whole},
    Law{OpKind::kReduceScatter, OpKind::kReduceScatter, reduce_rows},
    Law{OpKind::kReduceScatterV, OpKind::kReduceScatter, reduce_rows, true},
};

constexpr std::array kMovements{
    Law{OpKind::kBroadcast, OpKind::kBroadcast, broadcast_whole},
    Law{OpKind::kAllGather, OpKind::kAllGather, gather_rows},
    Law{OpKind::kAllGatherV, OpKind::kAllGather, gather_rows, true},
    Law{OpKind::kGather, OpKind::kGather, gather_rows},
    Law{OpKind::kGatherV, OpKind::kGather, gather_rows, true},
    Law{OpKind::kScatter, OpKind::kScatter, scatter_rows},
    Law{OpKind::kScatterV, OpKind::kScatter, scatter_rows, true},
    Law{OpKind::kAllToAll, OpKind::kAllToAll, exchange_rows},
    Law{OpKind::kAllToAllV, OpKind::kAllToAll, exchange_rows, true},
};

// Every `stride`-th of the cases, so that a sample takes its turn through all of them.
class Sample {
 public:
  explicit Sample(const Sizes& sizes) : stride_(sizes.stride), count_(sizes.first) {}
  bool takes() { return count_++ % stride_ == 0; }
  int count() const { return count_; }

 private:
  int stride_;
  int count_;
};

std::vector<DType> types_of(const Sizes& sizes) {
  if (sizes.only_f32) return {DType::kF32};
  return {kTypes.begin(), kTypes.end()};
}

// The case at every count, in place and apart, from changing roots.
std::string check_sizes(Communicator& world, const Law& law, Case one, const Sizes& sizes,
                        Sample& sample) {
  for (const std::int64_t elems : sizes.elems) {
    for (const bool in_place : {false, true}) {
      if (!sample.takes()) continue;
      one.elems = elems;
      one.in_place = in_place;
      one.root = sample.count() % world.size();
      if (std::string fault = law.check(world, one); !fault.empty()) return fault;
    }
  }
  return "";
}

}  // namespace

std::string reduce_exactly(Communicator& world, const Sizes& sizes) {
  Sample sample(sizes);
  for (const Law& law : kReductions) {
    for (const std::string_view algorithm : algorithms_of(law.collective, law.counted)) {
      for (const DType dtype : types_of(sizes)) {
        for (const ReduceOp op : kOps) {
          const bool scales = op == ReduceOp::kMean || op == ReduceOp::kPreMulSum;
          if (scales && !is_floating(dtype)) continue;
          Case one{law.kind, algorithm, dtype, op};
          one.exact_means = sizes.exact_means;
          if (auto fault = check_sizes(world, law, one, sizes, sample); !fault.empty()) {
            return fault;
          }
        }
      }
    }
  }
  return "";
}

std::string move_exactly(Communicator& world, const Sizes& sizes) {
  Sample sample(sizes);
  for (const Law& law : kMovements) {
    for (const std::string_view algorithm : algorithms_of(law.collective, law.counted)) {
      for (const DType dtype : types_of(sizes)) {
        const Case one{law.kind, algorithm, dtype, ReduceOp::kSum};
        if (auto fault = check_sizes(world, law, one, sizes, sample); !fault.empty()) return fault;
      }
    }
  }
  for (const std::string_view algorithm : algorithms_of(OpKind::kBarrier)) {
    auto work = world.barrier({.algorithm = algorithm, .deadline = {}, .stream = {}});
    const Status status = work.has_value() ? work.value().wait() : work.error();
    if (!status.ok()) return "barrier: " + std::string(status.message());
  }
  return "";
}

}  // namespace gradwire
