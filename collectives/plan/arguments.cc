#include "collectives/plan/arguments.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/schedules/op_traits.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostElems = std::int64_t{1} << 50;  // of one row, and of all together

long long wide(std::int64_t value) { return static_cast<long long>(value); }

// One call's arguments, and how to complain about them.
struct Arguments {
  const OpCall& call;
  const OpOptions& options;
  int rank;
  int size;
  Device device = {};  // of its tensors; of the host: of any of its kinds of memory

  Status refuse(const std::string& why) const {
    return {Code::kInvalidArgument, std::string(to_string(call.kind)) + ": " + why};
  }
  bool at_root() const { return rank == call.peer; }
};

bool reduces(OpKind kind) { return traits_of(kind).reduces; }

Status check_peer(const Arguments& a) {
  const OpKind kind = a.call.kind;
  const bool pair = traits_of(kind).pair;
  if (!pair && !traits_of(kind).rooted) return {};
  if (pair && (a.call.tag < 0 || a.call.tag > kMostTag)) {
    return a.refuse(format("tag %d (expected 0 to %d)", a.call.tag, kMostTag));
  }
  if (kind == OpKind::kRecv && a.call.peer == kAnySource) {
    return a.size > 1 ? Status() : a.refuse("any source in a group of 1 (expected 2 or more)");
  }
  if (a.call.peer < 0 || a.call.peer >= a.size) {
    return a.refuse(
        format("%s %d (expected 0 to %d)", pair ? "peer" : "root", a.call.peer, a.size - 1));
  }
  if (pair && a.call.peer == a.rank) {
    return a.refuse(format("peer %d, which is this rank itself (expected another)", a.rank));
  }
  return {};
}

Status check_reduction(const Arguments& a, DType dtype) {
  const ReduceOp op = a.call.op;
  const std::string name(to_string(op));
  if (!std::isfinite(a.options.factor)) {
    return a.refuse("factor " + shortest(a.options.factor) + " (expected a finite number)");
  }
  if (a.options.factor != 1 && (!reduces(a.call.kind) || op != ReduceOp::kPreMulSum)) {
    return a.refuse("factor " + shortest(a.options.factor) + " without pre_mul_sum (expected 1)");
  }
  if (!reduces(a.call.kind)) return {};
  if (a.call.kind == OpKind::kExclusiveScan && op == ReduceOp::kMean) {
    return a.refuse("mean (expected sum, pre_mul_sum, product, min or max)");
  }
  if ((op == ReduceOp::kMean || op == ReduceOp::kPreMulSum) && !is_floating(dtype)) {
    return a.refuse(name + " of " + std::string(to_string(dtype)) + " (expected a floating type)");
  }
  return {};
}

// The counts' sum and, by the way, what stands before this rank's.
struct Rows {
  std::int64_t all = 0;
  std::int64_t before = 0;
  std::int64_t own = 0;
  std::int64_t agreed = 0;  // as Extent has it
};

Result<Rows> read_counts(const Arguments& a, std::span<const std::int64_t> counts,
                         const char* which) {
  if (counts.size() != static_cast<std::size_t>(a.size)) {
    return a.refuse(format("%zu %s (expected %d, one a rank)", counts.size(), which, a.size));
  }
  Rows rows;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] < 0 || counts[r] > kMostElems - rows.all) {
      return a.refuse(format("%s[%zu] is %lld elements (expected 0 or more, 2^50 at most together)",
                             which, r, wide(counts[r])));
    }
    if (static_cast<int>(r) == a.rank) rows.before = rows.all;
    rows.all += counts[r];
  }
  rows.own = counts[static_cast<std::size_t>(a.rank)];
  rows.agreed = rows.all;
  return rows;
}

// Of the call's counts, or of `row` elements each, as all ranks agree on then.
Result<Rows> rows_of(const Arguments& a, std::int64_t row) {
  if (traits_of(a.call.kind).counted) return read_counts(a, a.call.counts, "counts");
  if (row > kMostElems / a.size) {
    return a.refuse(
        format("%d rows of %lld elements (expected at most 2^50 together)", a.size, wide(row)));
  }
  return Rows{.all = a.size * row, .before = a.rank * row, .own = row, .agreed = row};
}

Result<Extent> wanted_all_to_all_v(const Arguments& a) {
  GW_ASSIGN(const Rows sent, read_counts(a, a.call.counts, "send_counts"));
  GW_ASSIGN(const Rows received, read_counts(a, a.call.recv_counts, "recv_counts"));
  if (sent.own != received.own) {
    return a.refuse(
        format("%lld elements from this rank to itself, %lld received from it (expected as many)",
               wide(sent.own), wide(received.own)));
  }
  const bool even = std::ranges::equal(a.call.counts, a.call.recv_counts);
  return Extent{.in = sent.all, .out = received.all, .shared = even ? sent.all : 0};
}

// How many elements `in` and `out` should have where this rank uses them, and how many they may
// share.
Result<Extent> wanted(const Arguments& a) {
  const std::int64_t in = a.call.in.elems();
  const std::int64_t out = a.call.out.elems();
  switch (a.call.kind) {
    case OpKind::kBroadcast: return Extent{.in = out, .out = out, .agreed = out, .shared = out};
    case OpKind::kReduce:
    case OpKind::kAllReduce:
    case OpKind::kExclusiveScan: return Extent{.in = in, .out = in, .agreed = in, .shared = in};
    case OpKind::kReduceScatter:
    case OpKind::kReduceScatterV:
    case OpKind::kScatter:
    case OpKind::kScatterV: {
      GW_ASSIGN(const Rows rows, rows_of(a, out));
      return Extent{.in = rows.all,
                    .out = rows.own,
                    .agreed = rows.agreed,
                    .shared = rows.own,
                    .in_begin = rows.before};
    }
    case OpKind::kAllGather:
    case OpKind::kAllGatherV:
    case OpKind::kGather:
    case OpKind::kGatherV: {
      GW_ASSIGN(const Rows rows, rows_of(a, in));
      return Extent{.in = rows.own,
                    .out = rows.all,
                    .agreed = rows.agreed,
                    .shared = rows.own,
                    .out_begin = rows.before};
    }
    case OpKind::kAllToAll:
      if (in % a.size == 0) return Extent{.in = in, .out = in, .agreed = in, .shared = in};
      return a.refuse(format("in has %lld elements (expected a multiple of %d)", wide(in), a.size));
    case OpKind::kAllToAllV: return wanted_all_to_all_v(a);
    case OpKind::kSend: return Extent{.in = in, .agreed = in};
    case OpKind::kRecv: return Extent{.out = out, .agreed = out};
    case OpKind::kAllReduceFused:
    case OpKind::kBarrier: break;
  }
  return Extent{.agreed = 0};
}

std::string text_of(Device device) {
  return device.space == MemorySpace::kCuda ? format("memory of CUDA device %d", device.ordinal)
                                            : "host memory";
}

bool on_cuda(Device device) { return device.space == MemorySpace::kCuda; }

Status check_place(const Arguments& a, const char* which, ConstTensorView tensor) {
  if (tensor.empty()) return {};
  const bool wanted = on_cuda(a.device);
  if (!wanted && !on_cuda(tensor.device())) return {};
  const Device device = wanted ? a.device : a.options.stream.device;
  if (!wanted && !on_cuda(device)) return {};
  if (tensor.device() == device) return {};
  return a.refuse(which + (" is in " + text_of(tensor.device())) + " (expected " + text_of(device) +
                  (wanted ? "" : ", as the stream, or host memory") + ")");
}

Status check_one_device(const Arguments& a, ConstTensorView x, ConstTensorView y) {
  const bool both = !x.empty() && !y.empty() && on_cuda(x.device()) && on_cuda(y.device());
  if (!both || x.device() == y.device()) return {};
  return a.refuse("tensors in " + text_of(x.device()) + " and in " + text_of(y.device()) +
                  " (expected one device)");
}

// Beyond, counts of bytes and of several tensors would not be what they say.
Status check_extent(const Arguments& a, const char* which, ConstTensorView tensor) {
  if (tensor.elems() >= 0 && tensor.elems() <= kMostElems) return {};
  return a.refuse(format("%s has %lld elements (expected 0 to 2^50)", which, wide(tensor.elems())));
}

Status check_elems(const Arguments& a, const char* which, ConstTensorView tensor,
                   std::int64_t elems) {
  GW_TRY(check_place(a, which, tensor));
  GW_TRY(check_extent(a, which, tensor));
  if (tensor.elems() == elems) return {};
  return a.refuse(
      format("%s has %lld elements (expected %lld)", which, wide(tensor.elems()), wide(elems)));
}

// Whether this rank's part of the operation reads `in`; the root's alone where it has what others
// get.
bool uses_in(const Arguments& a) {
  const OpTraits traits = traits_of(a.call.kind);
  if (a.call.kind == OpKind::kRecv || a.call.kind == OpKind::kBarrier) return false;
  const bool of_root = traits.rooted && !traits.reduces && traits.blocks != Blocks::kOut;
  return !of_root || a.at_root();
}

bool uses_out(const Arguments& a) {
  const OpTraits traits = traits_of(a.call.kind);
  if (a.call.kind == OpKind::kSend || a.call.kind == OpKind::kBarrier) return false;
  const bool at_root = traits.rooted && (traits.reduces || traits.blocks == Blocks::kOut);
  return !at_root || a.at_root();
}

std::uintptr_t begin_of(ConstTensorView tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data());
}

bool overlap(ConstTensorView a, ConstTensorView b) {
  if (a.empty() || b.empty()) return false;
  return begin_of(a) < begin_of(b) + b.bytes().size() &&
         begin_of(b) < begin_of(a) + a.bytes().size();
}

// extent.shared says how much may be shared before, and how much is after.
Status check_sharing(const Arguments& a, Extent& extent) {
  const bool apart =
      extent.in == 0 || extent.out == 0 || !overlap(a.call.in, ConstTensorView(a.call.out));
  const std::int64_t allowed = std::exchange(extent.shared, 0);
  if (apart) return {};
  const auto width = static_cast<std::int64_t>(size_of(extent.dtype));
  const std::int64_t seen = static_cast<std::int64_t>(begin_of(a.call.out)) -
                            static_cast<std::int64_t>(begin_of(a.call.in));
  const std::int64_t in_place = (extent.in_begin - extent.out_begin) * width;
  if (allowed == 0) {
    return a.refuse(format("out overlaps in, %lld bytes after its beginning (expected no overlap)",
                           wide(seen)));
  }
  if (seen != in_place) {
    return a.refuse(
        format("out overlaps in, %lld bytes after its beginning (expected %lld, which is in place, "
               "or no overlap)",
               wide(seen), wide(in_place)));
  }
  extent.shared = allowed;
  return {};
}

Result<Extent> check_fused(const Arguments& a) {
  const std::span<const TensorView> tensors = a.call.tensors;
  Extent extent{.dtype = tensors.empty() ? DType::kF32 : tensors.front().dtype(), .agreed = 0};
  std::vector<TensorView> sorted(tensors.begin(), tensors.end());
  for (const TensorView& tensor : tensors) {
    GW_TRY(check_place(a, "a tensor", tensor));
    if (tensor.dtype() != extent.dtype) {
      return a.refuse("tensors of " + std::string(to_string(extent.dtype)) + " and " +
                      std::string(to_string(tensor.dtype())) + " (expected one type)");
    }
    GW_TRY(check_extent(a, "a tensor", tensor));
    extent.agreed += tensor.elems();
    if (extent.agreed > kMostElems) {
      return a.refuse(
          format("tensors of %lld elements (expected at most 2^50 together)", wide(extent.agreed)));
    }
  }
  std::erase_if(sorted, [](const TensorView& tensor) { return tensor.empty(); });
  std::ranges::sort(sorted, {}, [](const TensorView& tensor) { return begin_of(tensor); });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const Device one = sorted[i - 1].device();
    const Device other = sorted[i].device();
    if ((on_cuda(one) || on_cuda(other)) && one != other) {
      return a.refuse("tensors in " + text_of(one) + " and in " + text_of(other) +
                      " (expected one place)");
    }
    if (overlap(sorted[i - 1], sorted[i])) {
      return a.refuse("two of its tensors overlap (expected disjoint tensors)");
    }
  }
  extent.in = extent.out = extent.shared = extent.agreed;
  return extent;
}

}  // namespace

KeptCall::KeptCall(const CheckedCall& checked)
    : call(checked.call),
      options(checked.options),
      extent(checked.extent),
      counts(call.counts.begin(), call.counts.end()),
      recv_counts(call.recv_counts.begin(), call.recv_counts.end()),
      tensors(call.tensors.begin(), call.tensors.end()) {
  call.counts = counts;
  call.recv_counts = recv_counts;
  call.tensors = tensors;
  options.algorithm = "auto";
}

Result<Extent> check_call(const OpCall& call, const OpOptions& options, int rank, int size,
                          std::optional<Device> device) {
  const Arguments a{call, options, rank, size, device.value_or(Device{})};
  GW_TRY(check_peer(a));
  if (call.kind == OpKind::kAllReduceFused) {
    GW_ASSIGN(const Extent fused, check_fused(a));
    GW_TRY(check_reduction(a, fused.dtype));
    return fused;
  }
  GW_ASSIGN(Extent extent, wanted(a));
  const bool reads = uses_in(a);
  const bool writes = uses_out(a);
  if (!reads) extent.in = 0;
  if (!writes) extent.out = 0;
  if (reads) GW_TRY(check_elems(a, "in", call.in, extent.in));
  if (writes) GW_TRY(check_elems(a, "out", call.out, extent.out));
  if (reads && writes && !call.in.empty() && !call.out.empty() &&
      call.in.dtype() != call.out.dtype()) {
    return a.refuse(std::string(to_string(call.in.dtype())) + " into " +
                    std::string(to_string(call.out.dtype())) + " (expected one type)");
  }
  extent.dtype = reads && (!writes || !call.in.empty()) ? call.in.dtype() : call.out.dtype();
  GW_TRY(check_reduction(a, extent.dtype));
  if (reads && writes) GW_TRY(check_one_device(a, call.in, call.out));
  GW_TRY(check_sharing(a, extent));
  return extent;
}

namespace {

// Its operand as it stands: a copy waits until all that the caller wrote is in the cache.
template <typename Byte>
bool check_message(CheckedCall& checked, const BasicTensorView<Byte>& operand, int rank, int size) {
  const OpCall& call = checked.call;
  const OpOptions& options = checked.options;
  const std::int64_t elems = operand.elems();
  checked.extent.agreed = elems;
  checked.extent.dtype = operand.dtype();
  (call.kind == OpKind::kSend ? checked.extent.in : checked.extent.out) = elems;
  return options.factor == 1 && options.stream.device == Device{} && operand.device() == Device{} &&
         elems >= 0 && elems <= kMostElems && call.peer >= 0 && call.peer < size &&
         call.peer != rank && call.tag >= 0 && call.tag <= kMostTag;
}

}  // namespace

// Of tensors on the host: messages, an all_reduce in place, and what only moves. The other checks
// take as long as a fifth of a small operation in shared memory, and longer than a message.
bool check_quickly(CheckedCall& checked, int rank, int size) {
  const OpCall& call = checked.call;
  if (call.kind == OpKind::kSend) return check_message(checked, call.in, rank, size);
  if (call.kind == OpKind::kRecv) return check_message(checked, call.out, rank, size);
  const OpOptions& options = checked.options;
  const ConstTensorView in = call.in;
  const ConstTensorView out(call.out);
  const std::int64_t sent = in.elems();
  const std::int64_t received = out.elems();
  if (options.factor != 1 || options.stream.device != Device{} || in.device() != Device{} ||
      out.device() != Device{} || sent < 0 || received < 0 || sent > kMostElems ||
      received > kMostElems) {
    return false;
  }
  Extent& extent = checked.extent;
  extent.dtype = out.dtype();
  const bool matching = sent > 0 && in.dtype() == out.dtype();
  const bool in_place = in.data() == out.data() && sent == received;
  const bool peers = call.peer >= 0 && call.peer < size;
  switch (call.kind) {
    case OpKind::kAllReduce:
      extent.in = extent.out = extent.agreed = extent.shared = sent;
      return matching && in_place && call.op != ReduceOp::kMean && call.op != ReduceOp::kPreMulSum;
    case OpKind::kBroadcast: {
      const bool at_root = rank == call.peer;
      extent.out = extent.agreed = received;
      if (at_root) extent.in = received;
      if (at_root && in_place) extent.shared = received;
      return peers && received > 0 &&
             (!at_root || (matching && sent == received && (in_place || !overlap(in, out))));
    }
    case OpKind::kAllGather:
      extent.in = extent.agreed = sent;
      extent.out = received;
      extent.out_begin = rank * sent;
      return matching && sent <= kMostElems / size && received == size * sent && !overlap(in, out);
    case OpKind::kAllToAll:
      extent.in = extent.out = extent.agreed = sent;
      return matching && sent == received && sent % size == 0 && !overlap(in, out);
    default: return false;
  }
}

bool names_device(const OpCall& call, const OpOptions& options) {
  return on_cuda(options.stream.device) || on_cuda(call.in.device()) ||
         on_cuda(call.out.device()) ||
         std::ranges::any_of(call.tensors, [](const auto& one) { return on_cuda(one.device()); });
}

Device device_of(const OpCall& call, const Extent& extent, const OpOptions& options) {
  if (on_cuda(options.stream.device)) return options.stream.device;
  for (const TensorView& tensor : call.tensors) {
    if (!tensor.empty()) return tensor.device();
  }
  if (extent.in > 0 && on_cuda(call.in.device())) return call.in.device();
  if (extent.out > 0 && on_cuda(call.out.device())) return call.out.device();
  return {};
}

Queue queue_of(const CheckedCall& checked) {
  constexpr std::int64_t kMostUrgentBytes = 64 << 10;
  // Messages of one pair and tag keep their order, so all are of one queue.
  if (traits_of(checked.call.kind).pair) return Queue::kPipeline;
  if (checked.options.queue != Queue::kAuto) return checked.options.queue;
  const Extent& extent = checked.extent;
  const std::int64_t elems = std::max({extent.in, extent.out, extent.agreed});
  const auto width = static_cast<std::int64_t>(size_of(extent.dtype));
  return elems * width <= kMostUrgentBytes ? Queue::kLatency : Queue::kBulk;
}

}  // namespace gradwire
