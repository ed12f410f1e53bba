#include "collectives/device/nccl_plan.h"

#include <span>
#include <string>
#include <utility>

#include "base/text.h"
#include "collectives/schedules/op_traits.h"

namespace gradwire {
namespace {

using Kind = NcclStep::Kind;

// One call's steps in the making.
class Planning {
 public:
  Planning(const OpCall& call, const Extent& extent, double factor, int rank, int size,
           const std::byte* in)
      : call_(call),
        dtype_(extent.dtype),
        width_(static_cast<std::int64_t>(size_of(extent.dtype))),
        rank_(rank),
        size_(size),
        factor_(factor),
        in_(in) {}

  // Steps without elements do nothing, on all ranks alike.
  void add(Kind kind, const std::byte* in, std::byte* out, std::int64_t elems, int peer = 0) {
    if (elems == 0) return;
    plan_.steps.push_back({.kind = kind,
                           .in = in,
                           .out = out,
                           .elems = elems,
                           .dtype = dtype_,
                           .op = call_.op,
                           .factor = factor_,
                           .peer = peer});
  }
  void meet(std::byte* spare) {
    plan_.steps.push_back({.kind = Kind::kAllReduce,
                           .in = spare,
                           .out = spare,
                           .elems = 1,
                           .dtype = DType::kU8,
                           .op = ReduceOp::kSum});
  }
  void copy(const std::byte* from, std::byte* to, std::int64_t elems) {
    if (elems == 0 || from == to) return;
    plan_.copies.push_back({from, to, static_cast<std::size_t>(elems * width_)});
  }
  void send(const std::byte* from, std::int64_t elems, int to) {
    add(Kind::kSend, from, nullptr, elems, to);
    sent(elems);
  }
  void sent(std::int64_t elems) { plan_.bytes += static_cast<std::uint64_t>(elems * width_); }

  const std::byte* in(std::int64_t elem = 0) const {
    return in_ == nullptr ? nullptr : in_ + elem * width_;
  }
  std::byte* out(std::int64_t elem = 0) const {
    return call_.out.data() == nullptr ? nullptr : call_.out.data() + elem * width_;
  }
  // Elements of row r: as many as its count says, `even` where there are no counts.
  std::int64_t row(int r, std::int64_t even) const {
    return call_.counts.empty() ? even : call_.counts[static_cast<std::size_t>(r)];
  }
  // Calls visit(rank, where its row begins, the row's elements) for all ranks.
  template <typename Visit>
  void each_row(std::int64_t even, const Visit& visit) const {
    std::int64_t begin = 0;
    for (int r = 0; r < size_; ++r) {
      visit(r, begin, row(r, even));
      begin += row(r, even);
    }
  }
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool at_root() const { return rank_ == call_.peer; }
  NcclPlan take() { return std::move(plan_); }

 private:
  const OpCall& call_;
  DType dtype_;
  std::int64_t width_;
  int rank_;
  int size_;
  double factor_;
  const std::byte* in_;
  NcclPlan plan_;
};

void plan_fused(Planning& p, std::span<const TensorView> tensors) {
  for (const TensorView& tensor : tensors) {
    p.add(Kind::kAllReduce, tensor.data(), tensor.data(), tensor.elems());
    p.sent(2 * tensor.elems() * (p.size() - 1) / p.size());
  }
}

// Row r of all ranks' `in` is reduced to rank r.
void plan_reduce_rows(Planning& p) {
  p.each_row(0, [&](int r, std::int64_t begin, std::int64_t row) {
    p.add(Kind::kReduce, p.in(begin), p.out(), row, r);
    if (r != p.rank()) p.sent(row);
  });
}

void plan_gather_all(Planning& p) {
  p.each_row(0, [&](int r, std::int64_t begin, std::int64_t row) {
    std::byte* const out = p.out(begin);
    p.add(Kind::kBroadcast, r == p.rank() ? p.in() : out, out, row, r);
    if (r == p.rank()) p.sent(row * (p.size() - 1));
  });
}

void plan_gather(Planning& p, int root, std::int64_t even) {
  if (!p.at_root()) return p.send(p.in(), p.row(p.rank(), even), root);
  p.each_row(even, [&](int r, std::int64_t begin, std::int64_t row) {
    if (r == root) p.copy(p.in(), p.out(begin), row);
    if (r != root) p.add(Kind::kRecv, nullptr, p.out(begin), row, r);
  });
}

void plan_scatter(Planning& p, int root, std::int64_t even) {
  if (!p.at_root()) return p.add(Kind::kRecv, nullptr, p.out(), p.row(p.rank(), even), root);
  p.each_row(even, [&](int r, std::int64_t begin, std::int64_t row) {
    if (r == root) p.copy(p.in(begin), p.out(), row);
    if (r != root) p.send(p.in(begin), row, r);
  });
}

void plan_exchange(Planning& p, std::span<const std::int64_t> recv_counts, std::int64_t even) {
  std::int64_t received = 0;
  p.each_row(even, [&](int r, std::int64_t sent, std::int64_t out_row) {
    const std::int64_t in_row =
        recv_counts.empty() ? even : recv_counts[static_cast<std::size_t>(r)];
    if (r == p.rank()) {
      p.copy(p.in(sent), p.out(received), in_row);
    } else {
      p.send(p.in(sent), out_row, r);
      p.add(Kind::kRecv, nullptr, p.out(received), in_row, r);
    }
    received += in_row;
  });
}

}  // namespace

Status check_nccl_serves(const OpCall& call, const OpOptions& options) {
  const std::string name(to_string(call.kind));
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kUnsupported, name + " on a CUDA device: " + why);
  };
  if (options.algorithm != "auto" && options.algorithm != "nccl") {
    return refuse("algorithm '" + std::string(options.algorithm) + "' (expected auto or nccl)");
  }
  if (traits_of(call.kind).pair && call.tag != 0)
    return refuse(format("tag %d (expected 0: NCCL has no tags)", call.tag));
  if (call.kind == OpKind::kRecv && call.peer == kAnySource) {
    return refuse("from any source (expected a peer)");
  }
  if (call.kind == OpKind::kExclusiveScan) return refuse("NCCL has none (expected host memory)");
  return {};
}

bool needs_copy_of_in(const OpCall& call, const Extent& extent) {
  return traits_of(call.kind).base == OpKind::kAllToAll && extent.shared > 0;
}

NcclPlan plan_nccl(const OpCall& call, const Extent& extent, double factor, int rank, int size,
                   const std::byte* in, std::byte* spare) {
  Planning p(call, extent, factor, rank, size, in);
  const std::int64_t n = extent.in;
  switch (call.kind) {
    case OpKind::kAllReduce:
      p.add(Kind::kAllReduce, p.in(), p.out(), n);
      p.sent(2 * n * (size - 1) / size);
      break;
    case OpKind::kReduce:
      p.add(Kind::kReduce, p.in(), p.out(), n, call.peer);
      if (rank != call.peer) p.sent(n);
      break;
    case OpKind::kBroadcast:
      p.add(Kind::kBroadcast, p.in(), p.out(), extent.out, call.peer);
      if (rank == call.peer && size > 1) p.sent(n);
      break;
    case OpKind::kReduceScatter:
      p.add(Kind::kReduceScatter, p.in(), p.out(), extent.out);
      p.sent(n - extent.out);
      break;
    case OpKind::kAllGather:
      p.add(Kind::kAllGather, p.in(), p.out(), n);
      p.sent(n * (size - 1));
      break;
    case OpKind::kAllReduceFused: plan_fused(p, call.tensors); break;
    case OpKind::kReduceScatterV: plan_reduce_rows(p); break;
    case OpKind::kAllGatherV: plan_gather_all(p); break;
    case OpKind::kGather:
    case OpKind::kGatherV: plan_gather(p, call.peer, n); break;
    case OpKind::kScatter:
    case OpKind::kScatterV: plan_scatter(p, call.peer, extent.out); break;
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV: plan_exchange(p, call.recv_counts, n / size); break;
    case OpKind::kSend: p.send(p.in(), n, call.peer); break;
    case OpKind::kRecv: p.add(Kind::kRecv, nullptr, p.out(), extent.out, call.peer); break;
    case OpKind::kBarrier: p.meet(spare); break;
    case OpKind::kExclusiveScan: break;
  }
  return p.take();
}

}  // namespace gradwire
