#include "trainer/accounts/run_memory.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/text.h"
#include "gradwire/schedule.h"
#include "trainer/batch_pass.h"
#include "trainer/layer_walk.h"
#include "trainer/stages/stage_memory.h"
#include "trainer/step/gradient_form.h"

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

// The most bytes that are whole at a time when layers open and close as `turns` say: of tensors
// that are gathered, `ahead` also for the next layer that has any while one computes, and of those
// that are wide for the layer that computes.
class Gathered {
 public:
  struct Widths {
    std::int64_t gathered = 0;  // bytes an element; 0: nothing is gathered
    std::int64_t wide = 0;
    bool ahead = false;
  };
  Gathered(const Model<float>& model, const std::vector<LayerTurn>& turns, const Widths& widths)
      : model_(model), widths_(widths) {
    for (const LayerTurn& turn : turns) {
      if (turn.kind == LayerTurn::Kind::kOpen) order_.push_back(turn.layer);
    }
    for (const LayerTurn& turn : turns) {
      if (turn.kind == LayerTurn::Kind::kOpen) open();
      if (turn.kind == LayerTurn::Kind::kClose) {
        change(wide_users_, turn.layer, -1, widths.wide);
        change(users_, turn.layer, -1, widths.gathered);
      }
    }
  }
  std::int64_t most() const { return most_; }

 private:
  void open() {
    while (asked_ <= next_ || (widths_.ahead && asked_ < order_.size() && !any_asked_ahead())) {
      change(users_, order_[asked_++], 1, widths_.gathered);
    }
    change(wide_users_, order_[next_++], 1, widths_.wide);
    most_ = std::max(most_, bytes_);
  }
  bool any_asked_ahead() const {
    for (std::size_t at = next_ + 1; at < asked_; ++at) {
      const auto [first, end] = model_.parameters_read_by(order_[at]);
      if (first < end) return true;
    }
    return false;
  }
  void change(std::map<int, int>& users, std::size_t layer, int by, std::int64_t width) {
    const auto [first, end] = model_.parameters_read_by(layer);
    for (int index = first; index < end; ++index) {
      const int before = users[index];
      users[index] += by;
      const std::int64_t elems = model_.parameters()[static_cast<std::size_t>(index)].shape.elems();
      if (before == 0) bytes_ += width * elems;
      if (before + by == 0) bytes_ -= width * elems;
    }
  }

  const Model<float>& model_;
  Widths widths_;
  std::vector<std::size_t> order_;
  std::size_t next_ = 0;
  std::size_t asked_ = 0;
  std::map<int, int> users_;
  std::map<int, int> wide_users_;
  std::int64_t bytes_ = 0;
  std::int64_t most_ = 0;
};

using Form = GradientForm;

struct Run {
  const RunMemoryQuestion& q;
  bool narrow = q.precision != Precision::kF32;
  bool away = q.offload != Offload::kNone;
  bool there = q.space == MemorySpace::kCuda;
  bool each = q.reduce_each && q.accumulate > 1;
  bool sums_first = q.accumulate > 1 && !each;

  Form form() const {
    return gradient_form({.wide = !narrow || q.wide_gradients,
                          .sums_first = sums_first,
                          .main_gradients = q.main_gradients});
  }
  // Gradients go back tensor by tensor.
  bool passes() const { return q.stage >= 2 && !sums_first; }
  // Gradients of uses join their parameter's in each micro-batch.
  bool adds_uses_each_time() const {
    return each || q.clips_worker || (q.momentum_at_worker && q.momentum > 0);
  }
  MemoryClass wide_class() const {
    return narrow ? MemoryClass::kMainGradients : MemoryClass::kGradients;
  }
};

Result<std::int64_t> gathered_bytes(const Model<float>& model, const Run& run) {
  const RunMemoryQuestion& q = run.q;
  Gathered::Widths widths;
  widths.ahead = q.stage == 3;
  if (q.stage == 3) widths.gathered = run.narrow ? kNarrow : kFp32;
  if (run.narrow || (q.stage == 0 && q.offload == Offload::kParameters)) widths.wide = kFp32;
  if (run.there) {
    return (widths.gathered + widths.wide) * parameter_elems(model.parameters());
  }
  if (q.stages != nullptr && q.stages->gathers) {
    return (widths.gathered + widths.wide) * gathered_stage_elems(model, *q.stages);
  }
  std::vector<LayerRange> ranges{model.all()};
  if (q.stages != nullptr) {
    ranges.clear();
    for (const StagePlace& place : q.stages->stages) ranges.push_back(place.here);
  }
  std::int64_t most = 0;
  for (const LayerRange& range : ranges) {
    GW_ASSIGN(const std::vector<Segment> segments, recompute_segments(q.recompute, model, range));
    const LayerWalk walk(model, segments, range);
    for (const Way way : {Way::kForward, Way::kBack}) {
      most = std::max(most, Gathered(model, walk.turns(way), widths).most());
    }
  }
  return most;
}

// Of micro-batches on their way through the whole model, or the rank's stages.
Status add_passes(RunMemory& m, const Model<float>& model, const RunMemoryQuestion& q) {
  if (q.stages == nullptr) {
    GW_ASSIGN(const ActivationElems activations,
              BatchPass::activation_elems(model, q.micro_batch, q.recompute, q.space));
    of(m.device, MemoryClass::kActivations) = kFp32 * activations.own;
    of(m.device, MemoryClass::kWorkspace) += kFp32 * activations.shared;
    return {};
  }
  GW_ASSIGN(const StageMemory stages, stage_memory(model, *q.stages, q.micro_batch, q.recompute));
  of(m.device, MemoryClass::kActivations) = stages.activations;
  of(m.device, MemoryClass::kWorkspace) += stages.workspace;
  of(m.device, MemoryClass::kMessages) = stages.messages;
  of(m.device, MemoryClass::kVersions) = stages.versions;
  return {};
}

// Parameters and what the optimizer keeps of them, on a rank of no sharded job.
void add_whole_state(RunMemory& m, const Run& run, std::int64_t elems, std::int64_t kept) {
  const RunMemoryQuestion& q = run.q;
  MemoryByClass& master = run.away ? m.host : m.device;
  MemoryByClass& stored = q.offload == Offload::kParameters ? m.host : m.device;
  if (run.narrow || run.away) of(master, MemoryClass::kMaster) = kFp32 * elems;
  if (run.narrow) of(stored, MemoryClass::kParameters) = kNarrow * elems;
  if (!run.narrow && q.offload != Offload::kParameters) {
    of(m.device, MemoryClass::kParameters) = kFp32 * elems;
  }
  of(master, MemoryClass::kMoments) = kept * kFp32 * elems;
}

// Of a sharded one: the shards, and at stages 1 and 2 the whole parameters, of which in fp32 the
// own parts are stepped where they lie if they travel exactly.
void add_sharded_state(RunMemory& m, const Run& run, std::int64_t elems, std::int64_t own,
                       std::int64_t kept) {
  const RunMemoryQuestion& q = run.q;
  MemoryByClass& shards = run.away ? m.host : m.device;
  of(shards, MemoryClass::kMoments) = kept * kFp32 * own;
  const bool alone = q.stage == 3 && !run.away && !run.narrow;
  const bool in_place = q.stage < 3 && !run.away && !run.narrow && q.exact_parameters;
  if (alone) of(shards, MemoryClass::kParameters) = kFp32 * own;
  if (!alone && !in_place) of(shards, MemoryClass::kMaster) = kFp32 * own;
  if (q.stage == 3 && run.narrow) of(shards, MemoryClass::kParameters) = kNarrow * own;
  if (q.stage < 3) of(m.device, MemoryClass::kParameters) = (run.narrow ? kNarrow : kFp32) * elems;
}

// Of all parameters, and of the own parts where they lie apart.
void add_gradients(RunMemory& m, const Run& run, std::int64_t elems, std::int64_t own) {
  const RunMemoryQuestion& q = run.q;
  const Form form = run.form();
  const bool whole = !run.passes() || q.whole_gradients || run.there;
  const std::int64_t handed = form == Form::kStored ? kNarrow : kFp32;
  const MemoryClass where = form == Form::kStored ? MemoryClass::kGradients : run.wide_class();
  if (whole) of(m.device, where) += handed * elems;
  if (form == Form::kSums && run.there) of(m.device, MemoryClass::kGradients) += kNarrow * elems;
  // Averages of micro-batches, added up.
  const bool narrow = form == Form::kStored;
  if (run.each && q.stage == 0 && narrow)
    of(m.device, MemoryClass::kMainGradients) += kFp32 * elems;
  if (q.stage == 0) return;
  if (run.each) {
    const bool apart = narrow || q.stage == 1;
    of(m.device, apart ? MemoryClass::kMainGradients : MemoryClass::kGradients) += kFp32 * own;
  } else if (run.passes()) {
    of(m.device, MemoryClass::kGradients) += handed * own;
  }
}

// Elements of a micro-batch's gradients beside what is handed over, or beside their sum. `uses`: of
// gradients of uses by tied layers.
std::int64_t micro_elems(const Run& run, const Model<float>& model, std::int64_t uses) {
  const Form form = run.form();
  if (run.q.stages != nullptr) {
    return waiting_gradient_elems(model, *run.q.stages,
                                  {.first_waits = form == Form::kStored,
                                   .whole = form == Form::kWide && run.q.whole_gradients});
  }
  const ParameterTable& table = model.parameters();
  const std::int64_t all = parameter_elems(table) + uses;
  const std::int64_t in_work = largest_tensor(table) + (run.adds_uses_each_time() ? uses : 0);
  if (form == Form::kWide) {
    if (run.q.accumulate == 1) return 0;
    if (run.each) return run.q.stage == 0 ? all : 0;
    return run.there || run.q.whole_gradients ? all : in_work;
  }
  return run.there ? all : in_work;
}

// Gradients of uses that wait for their parameter's beside what is handed over, or beside the sum.
void add_uses(RunMemory& m, const Run& run, std::int64_t uses) {
  const bool narrow = run.form() == Form::kStored;
  const bool in_slot = run.each && (narrow || run.q.stage == 0);  // micro_elems() has them
  if (in_slot) return;
  of(m.device, narrow ? MemoryClass::kGradients : run.wide_class()) +=
      (narrow ? kNarrow : kFp32) * uses;
}

// What is widened, or copied, and stepped together.
void add_chunk(RunMemory& m, const Run& run, std::int64_t stepped, bool two_passes) {
  if (!run.away && run.form() == Form::kWide) return;
  const std::int64_t chunk = std::clamp<std::int64_t>(stepped, 1, run.q.offload_chunk);
  const bool all = two_passes && run.there && !run.away;
  const std::int64_t bytes = kFp32 * (all ? std::max<std::int64_t>(stepped, 1) : chunk);
  if (run.away) {
    of(m.host, MemoryClass::kOther) += bytes;
  } else {
    of(m.device, MemoryClass::kWorkspace) += bytes;
  }
}

// What the way to a CUDA device and back takes beside what is held everywhere: numbers that kernels
// leave for the host, and tensors on their way in 16 bits.
void add_of_device(RunMemory& m, const Run& run, const ParameterTable& table) {
  constexpr std::int64_t kNumber = 8;
  const RunMemoryQuestion& q = run.q;
  const auto tensors = static_cast<std::int64_t>(table.size());
  std::int64_t& other = of(m.device, MemoryClass::kOther);
  other += kNumber * tensors;                         // of what the step is made from
  if (q.whole_gradients) other += kNumber * tensors;  // of what is looked at before
  if (q.clips_worker) other += kNumber;
  if (q.optimizer == "lamb" && !run.away) other += 2 * kNumber * tensors;
  if (run.away && run.form() != Form::kWide && !run.each) {
    const std::int64_t own =
        q.stage == 0 ? parameter_elems(table) : own_elems(table, q.rank, q.ranks);
    of(m.host, MemoryClass::kOther) += kNarrow * std::clamp<std::int64_t>(own, 1, q.offload_chunk);
  }
  if (run.narrow && q.stage == 0 && q.offload == Offload::kParameters) {
    other += kNarrow * largest_tensor(table);
  }
  if (run.narrow && q.stage == 0 && q.offload == Offload::kOptimizer) {
    of(m.host, MemoryClass::kOther) +=
        kNarrow * std::min(ComputeParameters::kPart, parameter_elems(table));
  }
}

}  // namespace

Result<RunMemory> run_memory(const Model<float>& model, const RunMemoryQuestion& q) {
  const ParameterTable& table = model.parameters();
  const std::int64_t elems = parameter_elems(table);
  const Run run{q};
  RunMemory m;
  GW_ASSIGN(const std::int64_t kept, values_kept(q));
  const std::int64_t own = q.stage == 0 ? elems : own_elems(table, q.rank, q.ranks);
  if (q.stage == 0) {
    add_whole_state(m, run, elems, kept);
  } else {
    add_sharded_state(m, run, elems, own, kept);
  }
  add_gradients(m, run, elems, own);
  const std::int64_t uses = model.gradients().elems() - elems;
  add_uses(m, run, uses);
  m.whole_sums = run.passes() && q.whole_gradients;
  GW_ASSIGN(of(m.device, MemoryClass::kGathered), gathered_bytes(model, run));
  GW_TRY(add_passes(m, model, q));
  of(m.device, MemoryClass::kWorkspace) += kFp32 * micro_elems(run, model, uses);
  of(m.device, MemoryClass::kOther) =
      BatchPass::other_bytes(model, q.micro_batch, q.labels, q.space) +
      kFp32 * (q.momentum_at_worker && q.momentum > 0 ? q.accumulate * elems : 0);
  add_chunk(m, run, own, q.optimizer == "lamb");
  if (run.there) add_of_device(m, run, table);
  return m;
}

Result<LinkBytes> link_bytes(const Model<float>& model, const RunMemoryQuestion& q) {
  LinkBytes bytes;
  if (q.offload == Offload::kNone) return bytes;
  const ParameterTable& table = model.parameters();
  const std::int64_t elems = parameter_elems(table);
  const std::int64_t width = q.precision == Precision::kF32 ? kFp32 : kNarrow;
  const Run run{q};
  const std::int64_t gradient = run.form() == Form::kWide || run.each ? kFp32 : kNarrow;
  if (q.stage > 0) {
    const std::int64_t own = own_elems(table, q.rank, q.ranks);
    bytes.out = gradient * own;
    if (q.stage < 3) bytes.in = width * own;
    if (q.stage < 3) return bytes;
  } else {
    bytes.out = gradient * elems;
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
        bytes.in += width * (q.stage == 3 ? piece(all, q.ranks, q.rank).size() : all);
      }
    }
  }
  // Every micro-batch goes forward and back.
  bytes.in *= q.accumulate;
  return bytes;
}

}  // namespace gradwire
