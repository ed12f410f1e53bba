#include "adapters/c/operation_call.h"

#include <array>
#include <span>
#include <string>

#include "adapters/c/outcome.h"
#include "adapters/c/places.h"

namespace gradwire::c {
namespace {

// Elements of one row: as many rows as ranks still count in 64 bits.
constexpr std::int64_t kMostElems = std::int64_t{1} << 40;

// How many elements an operation looks at on this rank, in `in` and in `out`.
enum class Part : std::uint8_t {
  kNone,
  kRow,       // count
  kRootRow,   // count at root, else none
  kRows,      // size rows of count
  kRootRows,  // at root, else none
  kOwn,       // counts[rank]
  kAll,       // the sum of counts
  kRootAll,   // at root, else none
  kReceived,  // the sum of recv_counts
};
struct Shape2 {
  OpKind kind;
  Part in;
  Part out;
};
// By gw_kind.
constexpr std::array<Shape2, 17> kShapes = {{
    {OpKind::kBroadcast, Part::kNone, Part::kRow},
    {OpKind::kReduce, Part::kRow, Part::kRootRow},
    {OpKind::kAllReduce, Part::kRow, Part::kRow},
    {OpKind::kReduceScatter, Part::kRows, Part::kRow},
    {OpKind::kReduceScatterV, Part::kAll, Part::kOwn},
    {OpKind::kAllGather, Part::kRow, Part::kRows},
    {OpKind::kAllGatherV, Part::kOwn, Part::kAll},
    {OpKind::kGather, Part::kRow, Part::kRootRows},
    {OpKind::kGatherV, Part::kOwn, Part::kRootAll},
    {OpKind::kScatter, Part::kRootRows, Part::kRow},
    {OpKind::kScatterV, Part::kRootAll, Part::kOwn},
    {OpKind::kAllToAll, Part::kRows, Part::kRows},
    {OpKind::kAllToAllV, Part::kAll, Part::kReceived},
    {OpKind::kExclusiveScan, Part::kRow, Part::kRow},
    {OpKind::kBarrier, Part::kNone, Part::kNone},
    {OpKind::kSend, Part::kRow, Part::kNone},
    {OpKind::kRecv, Part::kNone, Part::kRow},
}};

bool reduces(OpKind kind) {
  return kind == OpKind::kReduce || kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter ||
         kind == OpKind::kReduceScatterV || kind == OpKind::kExclusiveScan;
}

bool takes_counts(const Shape2& shape) {
  return shape.in == Part::kAll || shape.in == Part::kOwn || shape.in == Part::kRootAll;
}

Status refuse(const char* function, const std::string& why) {
  return {Code::kInvalidArgument, std::string(function) + ": " + why};
}

Result<std::int64_t> sum_of(const char* function, const char* what,
                            std::span<const std::int64_t> counts) {
  std::int64_t sum = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] < 0 || counts[r] > kMostElems - sum) {
      return refuse(function, format("%s[%zu] is %lld (expected 0 or more, 2^40 at most together)",
                                     what, r, static_cast<long long>(counts[r])));
    }
    sum += counts[r];
  }
  return sum;
}

// One of an operation's two tensors on this rank.
struct Reader {
  const char* function;
  const gw_op& op;
  int rank;
  int size;
  Device device;

  Result<std::int64_t> elems(Part part) const {
    const bool root = op.peer == rank;
    const auto own = static_cast<std::size_t>(rank);
    const auto ranks = static_cast<std::size_t>(size);
    switch (part) {
      case Part::kNone: return 0;
      case Part::kRow: return op.count;
      case Part::kRootRow: return root ? op.count : 0;
      case Part::kRows: return op.count * size;
      case Part::kRootRows: return root ? op.count * size : 0;
      case Part::kOwn: return op.counts[own];
      case Part::kRootAll:
        if (!root) return 0;
        [[fallthrough]];
      case Part::kAll: return sum_of(function, "counts", {op.counts, ranks});
      case Part::kReceived: return sum_of(function, "recv_counts", {op.recv_counts, ranks});
    }
    return 0;
  }

  Result<TensorView> view(Part part, const char* what, void* data, DType dtype) const {
    GW_ASSIGN(const std::int64_t count, elems(part));
    if (count == 0) return TensorView(nullptr, Shape::vector(0), dtype);
    return view_of_row(function, what, data, count, dtype, device);
  }
};

Status check_counts(const Reader& reader, const Shape2& shape) {
  const gw_op& op = reader.op;
  if (op.count < 0 || op.count > kMostElems) {
    return refuse(reader.function,
                  format("count %lld (expected 0 to 2^40)", static_cast<long long>(op.count)));
  }
  if (takes_counts(shape)) GW_TRY(check_given(op.counts, reader.function, "counts"));
  if (shape.out == Part::kReceived) {
    GW_TRY(check_given(op.recv_counts, reader.function, "recv_counts"));
  }
  if (!takes_counts(shape)) return {};
  return sum_of(reader.function, "counts", {op.counts, static_cast<std::size_t>(reader.size)})
      .error();
}

}  // namespace

Result<DType> dtype_of(const char* function, gw_dtype dtype) {
  if (dtype >= GW_F64 && dtype <= GW_U8) return static_cast<DType>(dtype);
  return refuse(function,
                format("dtype %d (expected GW_F64 (0) to GW_U8 (7))", static_cast<int>(dtype)));
}

Result<ReduceOp> reduction_of(const char* function, gw_reduction reduction) {
  static_assert(static_cast<int>(ReduceOp::kSum) == GW_SUM);
  static_assert(static_cast<int>(ReduceOp::kPreMulSum) == GW_PRE_MUL_SUM);
  if (reduction >= GW_SUM && reduction <= GW_PRE_MUL_SUM) return static_cast<ReduceOp>(reduction);
  if (reduction >= GW_BIT_AND && reduction <= GW_BIT_XOR) {
    return refuse(function,
                  "a bitwise reduction of many tensors or in a batch (expected one tensor in an "
                  "operation of its own)");
  }
  return refuse(function, format("reduction %d (expected GW_SUM (0) to GW_BIT_XOR (8))",
                                 static_cast<int>(reduction)));
}

Result<TensorView> view_of_row(const char* function, const char* what, void* data,
                               std::int64_t count, DType dtype, Device device) {
  if (count < 0 || count > kMostElems * 65536) {
    return refuse(function, std::string(what) + format(" has %lld elements (expected 0 or more)",
                                                       static_cast<long long>(count)));
  }
  if (count > 0 && data == nullptr) {
    return refuse(function, std::string(what) + format(" is NULL (expected %lld elements)",
                                                       static_cast<long long>(count)));
  }
  if (count > 0) GW_TRY(check_memory(function, what, data, device));
  return TensorView(static_cast<std::byte*>(data), Shape::vector(count), dtype, device);
}

Result<OpCall> call_of(const char* function, const gw_op& op, int rank, int size, Device device) {
  if (op.kind < GW_OP_BROADCAST || op.kind > GW_OP_RECV) {
    return refuse(function, format("kind %d (expected GW_OP_BROADCAST (0) to GW_OP_RECV (16))",
                                   static_cast<int>(op.kind)));
  }
  const Shape2& shape = kShapes[static_cast<std::size_t>(op.kind)];
  OpCall call{.kind = shape.kind, .peer = op.peer, .tag = op.tag};
  if (shape.kind == OpKind::kBarrier) return call;
  GW_ASSIGN(const DType dtype, dtype_of(function, op.dtype));
  if (reduces(shape.kind)) {
    GW_ASSIGN(call.op, reduction_of(function, op.reduction));
  }
  const Reader reader{function, op, rank, size, device};
  GW_TRY(check_counts(reader, shape));
  // Nothing is written through `in`: it becomes a view of constant bytes.
  GW_ASSIGN(call.in, reader.view(shape.in, "in", const_cast<void*>(op.in), dtype));
  GW_ASSIGN(call.out, reader.view(shape.out, "out", op.out, dtype));
  if (shape.kind == OpKind::kBroadcast) call.in = call.out;
  const auto ranks = static_cast<std::size_t>(size);
  if (takes_counts(shape)) call.counts = {op.counts, ranks};
  if (shape.out == Part::kReceived) call.recv_counts = {op.recv_counts, ranks};
  return call;
}

}  // namespace gradwire::c
