// Maxima and minima as ReduceOp promises them: a NaN wins, whoever has it, -0 is below +0,
// infinities and numbers too small to be normal count as they are.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/reference/exact_data.h"
#include "tests/support/short_run.h"

namespace gradwire {
namespace {

using Bytes = std::vector<std::byte>;

struct FloatLayout {
  DType dtype;
  std::uint64_t infinity;  // its bits
  std::uint64_t odd_nan;   // one that no arithmetic makes: negative, signalling
  int least;               // 2^least is the smallest number
};
constexpr std::array kLayouts{
    FloatLayout{DType::kF64, 0x7ff0'0000'0000'0000u, 0xfff0'0000'0000'0001u, -1074},
    FloatLayout{DType::kF32, 0x7f80'0000u, 0xff80'0001u, -149},
    FloatLayout{DType::kF16, 0x7c00u, 0xfc01u, -24},
    FloatLayout{DType::kBF16, 0x7f80u, 0xff81u, -133},
};

// Rank's element i: of each 10 one rank, which changes, has something else than the others.
double number_of(const FloatLayout& layout, int rank, int size, std::int64_t i) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool chosen = i / 10 % size == rank;
  const double plain = static_cast<double>((i * 7 + rank * 31) % 97 - 48);
  const double least = std::ldexp(1, layout.least);
  switch (i % 10) {
    case 0: return chosen ? kNan : plain;
    case 1: return chosen ? plain : kNan;
    case 2: return chosen ? kNan : -kInfinity;
    case 3: return chosen ? kNan : kInfinity;
    case 4: return chosen ? -0.0 : 0.0;
    case 5: return chosen ? 0.0 : -0.0;
    case 6: return chosen ? kInfinity : plain;
    case 7: return chosen ? -kInfinity : plain;
    case 8: return chosen ? least : -least;
    default: return plain;
  }
}

void put(const FloatLayout& layout, double number, bool odd, std::byte* at) {
  if (std::isnan(number) && odd) {
    std::memcpy(at, &layout.odd_nan, size_of(layout.dtype));  // the low bytes come first
  } else {
    reference::store(layout.dtype, number, at);
  }
}

// NaNs of both kinds, by turns.
Bytes inputs(const FloatLayout& layout, int rank, int size, std::int64_t count) {
  Bytes bytes(static_cast<std::size_t>(count) * size_of(layout.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i) * size_of(layout.dtype);
    put(layout, number_of(layout, rank, size, i), i / 10 % 2 == 1, bytes.data() + at);
  }
  return bytes;
}

bool below(double a, double b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); }

double extreme(const FloatLayout& layout, ReduceOp op, int size, std::int64_t i) {
  double found = number_of(layout, 0, size, i);
  for (int r = 1; r < size && !std::isnan(found); ++r) {
    const double next = number_of(layout, r, size, i);
    const bool better = op == ReduceOp::kMax ? below(found, next) : below(next, found);
    if (std::isnan(next) || better) found = next;
  }
  return found;
}

bool is_nan(const FloatLayout& layout, const std::byte* at) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, size_of(layout.dtype));
  const std::uint64_t sign = std::uint64_t{1} << (8 * size_of(layout.dtype) - 1);
  return (bits & ~sign) > layout.infinity;
}

// One type and one of the two, on all ranks.
class FloatExtremes {
 public:
  FloatExtremes(Communicator& world, const FloatLayout& layout, ReduceOp op, std::int64_t row)
      : world_(world),
        layout_(layout),
        op_(op),
        row_(row),
        all_(row * world.size()),
        in_(inputs(layout, world.rank(), world.size(), all_)) {}

  std::string check() {
    std::string fault = all_reduce();
    if (fault.empty()) fault = reduce();
    if (fault.empty()) fault = reduce_scatter();
    if (fault.empty()) fault = reduce_scatter_v();
    return fault.empty() ? all_reduce_fused() : fault;
  }

 private:
  std::string all_reduce() {
    Bytes out(in_.size());
    Bytes both = in_;
    std::string fault =
        run({.kind = OpKind::kAllReduce, .in = view(in_), .out = view(out), .op = op_});
    if (fault.empty()) fault = compare("all_reduce", out, 0);
    if (!fault.empty()) return fault;
    fault = run({.kind = OpKind::kAllReduce, .in = view(both), .out = view(both), .op = op_});
    return fault.empty() ? compare("all_reduce in place", both, 0) : fault;
  }
  std::string reduce() {
    for (int root = 0; root < world_.size(); ++root) {
      const bool mine = root == world_.rank();
      Bytes out(mine ? in_.size() : 0);
      const OpCall call{.kind = OpKind::kReduce,
                        .in = view(in_),
                        .out = mine ? view(out) : TensorView(),
                        .op = op_,
                        .peer = root};
      std::string fault = run(call);
      if (fault.empty()) fault = compare("reduce", out, 0);
      if (!fault.empty()) return fault;
    }
    return "";
  }
  std::string reduce_scatter() {
    const std::int64_t first = row_ * world_.rank();
    Bytes out(in_.size() / static_cast<std::size_t>(world_.size()));
    Bytes both = in_;
    std::string fault =
        run({.kind = OpKind::kReduceScatter, .in = view(in_), .out = view(out), .op = op_});
    if (fault.empty()) fault = compare("reduce_scatter", out, first);
    if (!fault.empty()) return fault;
    const TensorView own = view(both).slice(first, row_);
    fault = run({.kind = OpKind::kReduceScatter, .in = view(both), .out = own, .op = op_});
    if (!fault.empty()) return fault;
    return compare("reduce_scatter in place", {own.data(), own.data() + own.bytes().size()}, first);
  }
  // The first rank gets nothing, the last what it would have had.
  std::string reduce_scatter_v() {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(world_.size()), row_);
    counts.back() += counts.front();
    if (world_.size() > 1) counts.front() = 0;
    std::int64_t first = 0;
    for (int r = 0; r < world_.rank(); ++r) first += counts[static_cast<std::size_t>(r)];
    if (world_.size() == 1) counts.front() = row_;
    const std::int64_t own = counts[static_cast<std::size_t>(world_.rank())];
    Bytes out(static_cast<std::size_t>(own) * size_of(layout_.dtype));
    const std::string fault = run({.kind = OpKind::kReduceScatterV,
                                   .in = view(in_),
                                   .out = view(out),
                                   .op = op_,
                                   .counts = counts});
    return fault.empty() ? compare("reduce_scatter_v", out, first) : fault;
  }
  std::string all_reduce_fused() {
    Bytes data = in_;
    Bytes apart(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(size_of(layout_.dtype)));
    const std::vector<TensorView> tensors{view(data), view(apart)};
    std::string fault = run({.kind = OpKind::kAllReduceFused, .op = op_, .tensors = tensors});
    if (fault.empty()) fault = compare("all_reduce_fused", data, 0);
    return fault.empty() ? compare("all_reduce_fused", apart, 0) : fault;
  }

  TensorView view(Bytes& bytes) const {
    const auto elems = static_cast<std::int64_t>(bytes.size() / size_of(layout_.dtype));
    return {bytes.data(), Shape::vector(elems), layout_.dtype};
  }
  std::string run(const OpCall& call) {
    auto work = world_.start(call);
    const Status status = work.has_value() ? work.value().wait() : work.error();
    return status.ok() ? "" : text("", -1) + std::string(status.message());
  }
  std::string text(const char* name, std::int64_t elem) const {
    return format("%s of %s, element %lld: ", (std::string(to_string(op_)) + " " + name).c_str(),
                  std::string(to_string(layout_.dtype)).c_str(), static_cast<long long>(elem));
  }
  // `got` is the reduction from element `first` on.
  std::string compare(const char* name, const Bytes& got, std::int64_t first) const {
    const std::size_t width = size_of(layout_.dtype);
    for (std::size_t i = 0; i * width < got.size(); ++i) {
      const std::int64_t elem = first + static_cast<std::int64_t>(i);
      const double want = extreme(layout_, op_, world_.size(), elem);
      const std::byte* const at = got.data() + i * width;
      if (std::isnan(want)) {
        if (!is_nan(layout_, at)) return text(name, elem) + "a NaN was lost";
        continue;
      }
      std::array<std::byte, 8> stored{};
      reference::store(layout_.dtype, want, stored.data());
      if (!std::equal(at, at + width, stored.begin())) return text(name, elem) + "wrong contents";
    }
    return "";
  }

  Communicator& world_;
  const FloatLayout& layout_;
  ReduceOp op_;
  std::int64_t row_;
  std::int64_t all_;
  Bytes in_;
};

}  // namespace

std::string keep_nans(Communicator& world) {
  ShortRun run(5, world.size());
  for (const FloatLayout& layout : kLayouts) {
    for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
      for (const std::int64_t row : {1, 43, 1000}) {
        if (!run.takes()) continue;
        if (auto fault = FloatExtremes(world, layout, op, row).check(); !fault.empty())
          return fault;
      }
    }
  }
  return "";
}

}  // namespace gradwire
