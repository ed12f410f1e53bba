// A communicator's operation on tensors of its own.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "bench/bench_memory.h"
#include "bench/collective_subjects.h"
#include "bench/exact_data.h"
#include "collectives/schedules/selection.h"

namespace gradwire::bench {
namespace {

constexpr std::array kOperations{
    BenchOperation{.name = "all_reduce",
                   .kind = OpKind::kAllReduce,
                   .collective = OpKind::kAllReduce,
                   .reduces = true,
                   .usually_in_place = true},
    BenchOperation{.name = "reduce_scatter",
                   .kind = OpKind::kReduceScatter,
                   .collective = OpKind::kReduceScatter,
                   .has_rows = true,
                   .reduces = true},
    BenchOperation{.name = "all_gather",
                   .kind = OpKind::kAllGather,
                   .collective = OpKind::kAllGather,
                   .has_rows = true},
    BenchOperation{.name = "broadcast",
                   .kind = OpKind::kBroadcast,
                   .collective = OpKind::kBroadcast,
                   .has_root = true,
                   .usually_in_place = true},
    BenchOperation{.name = "reduce",
                   .kind = OpKind::kReduce,
                   .collective = OpKind::kReduce,
                   .has_root = true,
                   .reduces = true},
    BenchOperation{.name = "gather",
                   .kind = OpKind::kGather,
                   .collective = OpKind::kGather,
                   .has_rows = true,
                   .has_root = true},
    BenchOperation{.name = "scatter",
                   .kind = OpKind::kScatter,
                   .collective = OpKind::kScatter,
                   .has_rows = true,
                   .has_root = true},
    BenchOperation{.name = "all_to_all",
                   .kind = OpKind::kAllToAll,
                   .collective = OpKind::kAllToAll,
                   .has_rows = true},
    BenchOperation{.name = "barrier", .kind = OpKind::kBarrier, .collective = OpKind::kBarrier},
    BenchOperation{.name = "send_recv"},
};

constexpr int kTag = 7;  // of messages of which there are several

// Elements of a rank's `in` and `out`; in place the smaller one begins there in the larger.
struct Layout {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t begin = 0;
};

Layout layout_of(const BenchOperation& operation, std::int64_t elems, int rank, int size,
                 int root) {
  if (!operation.kind) return {elems, elems, 0};
  const std::int64_t row = elems / size;
  const bool at_root = rank == root;
  switch (*operation.kind) {
    case OpKind::kReduceScatter: return {elems, row, rank * row};
    case OpKind::kAllGather: return {row, elems, rank * row};
    case OpKind::kBroadcast: return {at_root ? elems : 0, elems, 0};
    case OpKind::kReduce: return {elems, at_root ? elems : 0, 0};
    case OpKind::kGather: return {row, at_root ? elems : 0, rank * row};
    case OpKind::kScatter: return {at_root ? elems : 0, row, rank * row};
    case OpKind::kBarrier: return {};
    default: return {elems, elems, 0};
  }
}

class DenseSubject final : public Subject {
 public:
  DenseSubject(Communicator& communicator, const BenchOperation& operation,
               const CollectiveBenchOptions& options, std::int64_t elems)
      : communicator_(communicator),
        operation_(operation),
        root_(options.root),
        elems_(elems),
        row_(elems / communicator.size()),
        messages_(messages_of(options, elems * static_cast<std::int64_t>(size_of(options.dtype)))),
        one_way_(options.one_way),
        layout_(layout_of(operation, elems, communicator.rank(), communicator.size(), root_)),
        data_(options.dtype, operation.reduces ? options.op : ReduceOp::kSum, communicator.size()) {
  }

  Status prepare(const CollectiveBenchOptions& options) {
    if (operation_.collective) {
      const std::int64_t bytes = elems_ * static_cast<std::int64_t>(size_of(options.dtype));
      GW_ASSIGN(algorithm_, algorithm_of(bytes, options));
    } else if (options.algorithm != "auto") {
      return {Code::kInvalidArgument,
              "bench send_recv: --algorithm must be auto (got '" + options.algorithm + "')"};
    }
    GW_TRY(allocate(options));
    GW_ASSIGN(stream_, BenchStream::create(options));
    if (operation_.reduces) {
      call_.op = options.op;
      options_.factor = data_.factor(communicator_.rank());
    }
    if (operation_.kind) call_.kind = *operation_.kind;
    call_.in = in_;
    call_.out = out_;
    call_.peer = operation_.has_root ? root_ : 0;
    if (operation_.collective) options_.algorithm = algorithm_;
    options_.stream = stream_.stream();
    if (!options.persistent || !operation_.kind) return {};
    GW_ASSIGN(PersistentWork planned, communicator_.prepare(call_, options_));
    planned_.emplace(std::move(planned));
    return {};
  }

  // What runs where tensors are on a device, and the communicator has NCCL for those, is NCCL.
  Result<std::string_view> algorithm_of(std::int64_t bytes,
                                        const CollectiveBenchOptions& options) const {
    const OpKind kind = *operation_.kind;
    if (options.device.space == MemorySpace::kCuda && options.algorithm == "auto") {
      const auto nccl = communicator_.algorithm_for(kind, bytes, "nccl");
      if (nccl.has_value()) return nccl;
    }
    return communicator_.algorithm_for(kind, bytes, options.algorithm);
  }

  std::uint64_t bytes_sent() const override { return communicator_.bytes_sent(); }
  std::string algorithm() const override { return std::string(algorithm_); }

  // On zeros, which stay zeros however often they are reduced in place.
  Status run() override {
    if (messages_ > 1 || one_way_) return run_messages();
    GW_ASSIGN(Work work, start());
    return work.wait();
  }

  Result<std::int64_t> check() override {
    GW_TRY(clear(out_));
    GW_TRY(write_with(in_, stream_.stream(),
                      [this](TensorView here) { data_.fill(here, communicator_.rank(), 0); }));
    GW_TRY(run());
    GW_ASSIGN(const HostCopy result, HostCopy::of(out_, stream_.stream()));
    // It is only read; its constness is set aside for the common type.
    auto* const bytes = const_cast<std::byte*>(result.bytes().data());
    const std::int64_t wrong = count_wrong({bytes, out_.shape(), out_.dtype()});
    GW_TRY(clear(in_));
    GW_TRY(clear(out_));
    return wrong;
  }

 private:
  Status clear(TensorView tensor) const {
    return write_with(tensor, stream_.stream(),
                      [](TensorView here) { std::ranges::fill(here.bytes(), std::byte{0}); });
  }

  Status allocate(const CollectiveBenchOptions& options) {
    const bool in_place = options.in_place.value_or(operation_.usually_in_place);
    const auto make = [&](std::int64_t elems) {
      return BenchMemory::create(communicator_, elems, options.dtype, options);
    };
    if (!in_place) {
      GW_ASSIGN(first_, make(layout_.in));
      GW_ASSIGN(second_, make(layout_.out));
      in_ = first_.view();
      out_ = second_.view();
      return {};
    }
    GW_ASSIGN(first_, make(std::max(layout_.in, layout_.out)));
    const TensorView all = first_.view();
    const auto part = [&](std::int64_t elems) {
      if (elems == 0) return TensorView();
      return elems == all.elems() ? all : all.slice(layout_.begin, elems);
    };
    in_ = part(layout_.in);
    out_ = part(layout_.out);
    return {};
  }

  Result<Work> start() {
    if (planned_) return planned_->start();
    if (operation_.kind) return communicator_.start(call_, options_);
    const int p = communicator_.size();
    const std::array pair{OpCall::send(in_, (communicator_.rank() + 1) % p),
                          OpCall::recv(out_, (communicator_.rank() + p - 1) % p)};
    return communicator_.start_all(pair, options_);
  }

  // Every message is a call of its own and has a Work of its own, as programs have them.
  Status run_messages() {
    const int p = communicator_.size();
    const int me = communicator_.rank();
    const bool sends = !one_way_ || me % 2 == 0;
    const bool receives = !one_way_ || me % 2 == 1;
    const OpCall send = OpCall::send(in_, (me + 1) % p, kTag);
    const OpCall recv = OpCall::recv(out_, (me + p - 1) % p, kTag);
    works_.clear();
    const auto begin = [&](const OpCall& call) -> Status {
      GW_ASSIGN(Work work, communicator_.start(call, options_));
      works_.push_back(std::move(work));
      return {};
    };
    for (int i = 0; receives && i < messages_; ++i) GW_TRY(begin(recv));
    for (int i = 0; sends && i < messages_; ++i) GW_TRY(begin(send));
    for (Work& work : works_) GW_TRY(work.wait());
    if (!one_way_) return {};
    const OpCall answer = sends ? OpCall::recv(out_.slice(0, 1), me + 1, kTag)
                                : OpCall::send(in_.slice(0, 1), me - 1, kTag);
    GW_ASSIGN(Work work, communicator_.start(answer, options_));
    return work.wait();
  }

  std::int64_t count_wrong(ConstTensorView out) const {
    const int p = communicator_.size();
    const int me = communicator_.rank();
    if (one_way_ && me % 2 == 0) return 0;
    if (!operation_.kind) return data_.count_wrong(out, (me + p - 1) % p, 0);
    switch (*operation_.kind) {
      case OpKind::kAllReduce:
      case OpKind::kReduce: return data_.count_wrong_reduction(out, 0);
      case OpKind::kReduceScatter: return data_.count_wrong_reduction(out, me * row_);
      case OpKind::kAllGather:
      case OpKind::kGather: return count_wrong_rows(out, 0);
      case OpKind::kAllToAll: return count_wrong_rows(out, me * row_);
      case OpKind::kScatter: return data_.count_wrong(out, root_, me * row_);
      case OpKind::kBroadcast: return data_.count_wrong(out, root_, 0);
      default: return 0;
    }
  }

  // Row r of `out` should be rank r's elements from `first` on.
  std::int64_t count_wrong_rows(ConstTensorView out, std::int64_t first) const {
    std::int64_t wrong = 0;
    for (int r = 0; r < communicator_.size() && !out.empty(); ++r) {
      wrong += data_.count_wrong(out.slice(r * row_, row_), r, first);
    }
    return wrong;
  }

  Communicator& communicator_;
  BenchOperation operation_;
  int root_;
  std::int64_t elems_;
  std::int64_t row_;
  int messages_;
  bool one_way_;
  Layout layout_;
  ExactData data_;
  std::string_view algorithm_ = "pair";
  BenchMemory first_, second_;
  TensorView in_, out_;
  BenchStream stream_;  // goes before the memory
  OpCall call_;
  OpOptions options_;
  std::optional<PersistentWork> planned_;
  std::vector<Work> works_;  // goes first
};

}  // namespace

std::vector<std::string> bench_operations() {
  std::vector<std::string> names;
  for (const BenchOperation& one : kOperations) names.emplace_back(one.name);
  return names;
}

Result<BenchOperation> bench_operation_named(std::string_view name) {
  std::string known;
  for (const BenchOperation& one : kOperations) {
    if (one.name == name) return one;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  return Status(Code::kInvalidArgument, "bench: unknown operation '" + std::string(name) +
                                            "' (expected one of " + known + ")");
}

Result<std::unique_ptr<Subject>> make_dense_subject(Communicator& communicator,
                                                    const BenchOperation& operation,
                                                    const CollectiveBenchOptions& options,
                                                    std::int64_t elems) {
  auto subject = std::make_unique<DenseSubject>(communicator, operation, options, elems);
  GW_TRY(subject->prepare(options));
  return std::unique_ptr<Subject>(std::move(subject));
}

}  // namespace gradwire::bench
