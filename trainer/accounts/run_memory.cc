#include "trainer/accounts/run_memory.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/text.h"
#include "gradwire/schedule.h"
#include "trainer/batch_pass.h"
#include "trainer/layer_walk.h"

namespace gradwire {
namespace {

constexpr std::int64_t kFp32 = 4;
constexpr std::int64_t kNarrow = 2;

std::int64_t& of(MemoryByClass& all, MemoryClass what) {
  return all[static_cast<std::size_t>(what)];
}

// fp32 values of an element that an optimizer keeps.
Result<std::int64_t> values_kept(const RunMemoryQuestion& q) {
  if (q.optimizer == "adamw") return 2;
  if (q.optimizer == "lamb") return 3;  // the direction between its two passes over a tensor
  if (q.optimizer == "sgd" || q.optimizer == "nesterov") {
    return q.momentum > 0 && !q.momentum_at_worker ? 1 : 0;
  }
  return Status(Code::kInvalidArgument,
                "optimizer '" + q.optimizer + "' (expected sgd, nesterov, adamw or lamb)");
}

// What rank r owns of all tensors.
std::int64_t own_elems(const ParameterTable& table, int rank, int ranks) {
  std::int64_t elems = 0;
  for (const ParameterInfo& info : table) elems += piece(info.shape.elems(), ranks, rank).size();
  return elems;
}

std::int64_t largest_tensor(const ParameterTable& table) {
  std::int64_t most = 0;
  for (const ParameterInfo& info : table) most = std::max(most, info.shape.elems());
  return most;
}

// The most elements that are whole at a time when layers open and close as `turns` say; with
// `ahead` the next layer that has any comes while one computes.
class Gathered {
 public:
  Gathered(const Model<float>& model, const std::vector<LayerTurn>& turns, bool ahead)
      : model_(model) {
    for (const LayerTurn& turn : turns) {
      if (turn.kind == LayerTurn::Kind::kOpen) order_.push_back(turn.layer);
    }
    for (const LayerTurn& turn : turns) {
      if (turn.kind == LayerTurn::Kind::kOpen) open(ahead);
      if (turn.kind == LayerTurn::Kind::kClose) change(turn.layer, -1);
    }
  }
  std::int64_t most() const { return most_; }

 private:
  void open(bool ahead) {
    while (asked_ <= next_ || (ahead && asked_ < order_.size() && !any_asked_ahead())) {
      change(order_[asked_++], 1);
    }
    ++next_;
    most_ = std::max(most_, elems_);
  }
  bool any_asked_ahead() const {
    for (std::size_t at = next_ + 1; at < asked_; ++at) {
      const auto [first, end] = model_.parameters_read_by(order_[at]);
      if (first < end) return true;
    }
    return false;
  }
  void change(std::size_t layer, int by) {
    const auto [first, end] = model_.parameters_read_by(layer);
    for (int index = first; index < end; ++index) {
      const int before = users_[index];
      users_[index] += by;
      const std::int64_t elems = model_.parameters()[static_cast<std::size_t>(index)].shape.elems();
      if (before == 0) elems_ += elems;
      if (before + by == 0) elems_ -= elems;
    }
  }

  const Model<float>& model_;
  std::vector<std::size_t> order_;
  std::size_t next_ = 0;
  std::size_t asked_ = 0;
  std::map<int, int> users_;
  std::int64_t elems_ = 0;
  std::int64_t most_ = 0;
};

Result<std::int64_t> gathered_elems(const Model<float>& model, const RunMemoryQuestion& q) {
  GW_ASSIGN(const std::vector<Segment> segments, recompute_segments(q.recompute, model));
  const LayerWalk walk(model, segments);
  const bool ahead = q.stage == 3;
  return std::max(Gathered(model, walk.turns(Way::kForward), ahead).most(),
                  Gathered(model, walk.turns(Way::kBack), ahead).most());
}

// Of gradients of a micro-batch that is not the first, before they join the sum.
std::int64_t micro_elems(const RunMemoryQuestion& q, const ParameterTable& table) {
  const bool keeps_sums = q.precision == Precision::kF32 || q.main_gradients;
  if (q.accumulate == 1 || !keeps_sums) return 0;
  // What is exchanged; owners add it to their parts, at stage 0 each rank to the whole sum.
  if (q.reduce_each) return q.stage == 0 ? parameter_elems(table) : 0;
  const bool tensor_by_tensor = q.stage >= 2 && !q.whole_gradients && q.space == MemorySpace::kHost;
  return tensor_by_tensor ? largest_tensor(table) : parameter_elems(table);
}

// Parameters and what the optimizer keeps of them, on a rank of no sharded job.
void add_whole_state(RunMemory& m, const RunMemoryQuestion& q, std::int64_t elems,
                     std::int64_t kept) {
  const bool narrow = q.precision != Precision::kF32;
  const bool away = q.offload != Offload::kNone;
  MemoryByClass& master = away ? m.host : m.device;
  MemoryByClass& stored = q.offload == Offload::kParameters ? m.host : m.device;
  if (narrow || away) of(master, MemoryClass::kMaster) = kFp32 * elems;
  if (narrow) of(stored, MemoryClass::kParameters) = kNarrow * elems;
  if (!narrow && q.offload != Offload::kParameters) {
    of(m.device, MemoryClass::kParameters) = kFp32 * elems;
  }
  of(master, MemoryClass::kMoments) = kept * kFp32 * elems;
}

// Of a sharded one: the shards, and at stages 1 and 2 the whole parameters.
void add_sharded_state(RunMemory& m, const RunMemoryQuestion& q, std::int64_t elems,
                       std::int64_t own, std::int64_t kept) {
  const bool narrow = q.precision != Precision::kF32;
  const bool away = q.offload != Offload::kNone;
  MemoryByClass& shards = away ? m.host : m.device;
  const bool alone = q.stage == 3 && !away;
  of(shards, alone ? MemoryClass::kParameters : MemoryClass::kMaster) = kFp32 * own;
  of(shards, MemoryClass::kMoments) = kept * kFp32 * own;
  const MemoryClass grads = q.stage == 1 ? MemoryClass::kMainGradients : MemoryClass::kGradients;
  of(m.device, grads) += kFp32 * own;
  if (q.stage == 3) return;
  of(m.device, narrow ? MemoryClass::kMaster : MemoryClass::kParameters) += kFp32 * elems;
  if (narrow) of(m.device, MemoryClass::kParameters) += kNarrow * elems;
}

// What the way to a CUDA device and back takes beside what is held everywhere: numbers that kernels
// leave for the host, tensors on their way in 16 bits, and gradients that are whole all the time.
void add_of_device(RunMemory& m, const RunMemoryQuestion& q, const ParameterTable& table) {
  constexpr std::int64_t kNumber = 8;
  const std::int64_t elems = parameter_elems(table);
  const bool narrow = q.precision != Precision::kF32;
  const bool away = q.offload != Offload::kNone;
  std::int64_t& other = of(m.device, MemoryClass::kOther);
  other += kNumber;                                   // of the gradients' fold
  if (narrow && !q.main_gradients) other += kNumber;  // of those that are stored
  if (q.stage > 0) other += kNumber;                  // of the shards' norm
  if (q.optimizer == "lamb" && !away) {
    other += 2 * kNumber * static_cast<std::int64_t>(table.size());
  }
  if (narrow && q.stage == 0 && q.offload == Offload::kParameters) {
    other += kNarrow * largest_tensor(table);
  }
  if (narrow && q.stage == 0 && q.offload == Offload::kOptimizer) {
    of(m.host, MemoryClass::kOther) += kNarrow * std::min(ComputeParameters::kPart, elems);
  }
  if ((q.stage >= 2 && !m.whole_sums) || (narrow && !q.main_gradients)) {
    of(m.device, narrow ? MemoryClass::kMainGradients : MemoryClass::kGradients) += kFp32 * elems;
  }
}

}  // namespace

Result<RunMemory> run_memory(const Model<float>& model, const RunMemoryQuestion& q) {
  const ParameterTable& table = model.parameters();
  const std::int64_t elems = parameter_elems(table);
  const bool narrow = q.precision != Precision::kF32;
  const bool keeps_sums = !narrow || q.main_gradients;
  RunMemory m;
  GW_ASSIGN(const std::int64_t kept, values_kept(q));
  if (q.stage == 0) {
    add_whole_state(m, q, elems, kept);
  } else {
    add_sharded_state(m, q, elems, own_elems(table, q.rank, q.ranks), kept);
  }
  m.whole_sums = q.stage >= 2 && ((q.accumulate > 1 && !q.reduce_each) || q.whole_gradients);
  if ((q.stage < 2 && keeps_sums) || m.whole_sums) {
    of(m.device, narrow ? MemoryClass::kMainGradients : MemoryClass::kGradients) += kFp32 * elems;
  }
  if (narrow && q.stage < 2) of(m.device, MemoryClass::kGradients) += kNarrow * elems;
  if (narrow && q.stage >= 2) {
    of(m.device, MemoryClass::kWorkspace) += kNarrow * largest_tensor(table);
  }
  const bool comes_and_goes = q.stage == 3 || narrow || q.offload == Offload::kParameters;
  const bool there = q.space == MemorySpace::kCuda;
  if (comes_and_goes) {
    GW_ASSIGN(const std::int64_t gathered, gathered_elems(model, q));
    of(m.device, MemoryClass::kGathered) = kFp32 * (there ? elems : gathered);
  }
  GW_ASSIGN(const ActivationElems activations,
            BatchPass::activation_elems(model, q.micro_batch, q.recompute, q.space));
  of(m.device, MemoryClass::kActivations) = kFp32 * activations.own;
  of(m.device, MemoryClass::kWorkspace) += kFp32 * (activations.shared + micro_elems(q, table));
  of(m.device, MemoryClass::kOther) =
      BatchPass::other_bytes(model, q.micro_batch, q.labels, q.space) +
      kFp32 * (q.momentum_at_worker && q.momentum > 0 ? q.accumulate * elems : 0);
  if (q.offload != Offload::kNone) {
    const std::int64_t stepped = q.stage == 0 ? elems : own_elems(table, q.rank, q.ranks);
    of(m.host, MemoryClass::kOther) = kFp32 * std::clamp<std::int64_t>(stepped, 1, q.offload_chunk);
  } else if (!keeps_sums) {
    of(m.device, MemoryClass::kWorkspace) +=
        kFp32 * std::clamp<std::int64_t>(elems, 1, q.offload_chunk);
  }
  if (there) add_of_device(m, q, table);
  return m;
}

Result<LinkBytes> link_bytes(const Model<float>& model, const RunMemoryQuestion& q) {
  LinkBytes bytes;
  if (q.offload == Offload::kNone) return bytes;
  const ParameterTable& table = model.parameters();
  const std::int64_t elems = parameter_elems(table);
  const std::int64_t width = q.precision == Precision::kF32 ? kFp32 : kNarrow;
  if (q.stage > 0) {
    const std::int64_t own = kFp32 * own_elems(table, q.rank, q.ranks);
    bytes.out = own;
    if (q.stage < 3) bytes.in = own;
    if (q.stage < 3) return bytes;
  } else {
    bytes.out = (q.main_gradients ? kFp32 : width) * elems;
    bytes.in = q.offload == Offload::kOptimizer ? width * elems : 0;
    if (q.offload == Offload::kOptimizer) return bytes;
  }
  GW_ASSIGN(const std::vector<Segment> segments, recompute_segments(q.recompute, model));
  const LayerWalk walk(model, segments);
  for (const Way way : {Way::kForward, Way::kBack}) {
    for (const std::size_t layer : walk.openings(way)) {
      const auto [first, end] = model.parameters_read_by(layer);
      for (int index = first; index < end; ++index) {
        const std::int64_t all = table[static_cast<std::size_t>(index)].shape.elems();
        bytes.in += q.stage == 3 ? kFp32 * piece(all, q.ranks, q.rank).size() : width * all;
      }
    }
  }
  // Every micro-batch goes forward and back.
  bytes.in *= q.accumulate;
  return bytes;
}

}  // namespace gradwire
