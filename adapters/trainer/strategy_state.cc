#include "adapters/trainer/strategy_state.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "adapters/trainer/boxed_state.h"
#include "base/elements.h"
#include "compress/error_feedback/stored_residual.h"
#include "gradwire/schedule.h"

namespace gradwire {
namespace {

constexpr std::string_view kSharedSteps = "sharded.steps";
constexpr std::string_view kReduced = "reduce/";
constexpr std::string_view kGathered = "gather/";
constexpr std::string_view kShard = "shard";
constexpr std::string_view kOwed = ".error2";
// Of the shard that a rank owns, in the order of the box's elements.
constexpr std::string_view kOwnedKinds[] = {"error2", "shard_error", "ef21.average"};
constexpr std::string_view kScale = ".scale";
constexpr std::string_view kOwnResidual = ".error";
constexpr std::string_view kAggregatorSteps = "aggregator.step";
constexpr const char* kPositionName = "trainer/trainer.position";
constexpr std::int64_t kPositionSteps = 2;  // of its numbers: the optimizer's steps
constexpr std::int64_t kPositionNumbers = 3;

// That share a scale, of so many int8 elements.
std::int64_t blocks_of(std::int64_t elems) {
  const auto block = static_cast<std::int64_t>(kResidualBlock);
  return (elems + block - 1) / block;
}

std::string gradients_of(int replica) { return "dp-" + std::to_string(replica) + "/gradients/"; }
std::string gathers_of(int replica) { return "dp-" + std::to_string(replica) + "/parameters/"; }
std::string method_of(int rank) { return "rank-" + std::to_string(rank) + "/hook/"; }

bool has(std::span<const NamedTensor> state, std::string_view name) {
  return std::ranges::any_of(state, [&](const NamedTensor& own) { return own.name == name; });
}

// Views of no memory have a shape all the same.
TensorPart whole_part(std::string name, const TensorView& values) {
  if (values.elems() > 0) return whole_tensor(std::move(name), values);
  return {std::move(name), TensorBox::of(Shape::vector(0)), 0, ConstTensorView(values)};
}

// What has an element for each of a parameter's lies in its box; all else fits that box alone.
TensorPart gradient_part(const std::string& prefix, const std::string& name,
                         const TensorView& values, const ParameterTable& table) {
  const BoxedName of = boxed_name(table, name);
  if (of.info == nullptr) return whole_part(prefix + name, values);
  const TensorBox box = box_of(*of.info);
  if (has_parameter_shape(of.kind, values.dtype()) && values.elems() == box.elems()) {
    return {prefix + name, box, 0, ConstTensorView(values)};
  }
  return whole_part(prefix + of.info->name + range_text(box) + "." + std::string(of.kind), values);
}

// What it is called in checkpoints: of a shard's own parameters, and of its optimizer's state.
std::string shard_name(const ParameterState& of) {
  if (of.kind == kShard) return std::string(kMasterNames) + of.info->name;
  return std::string(kOptimizerNames) + of.info->name + "." + of.kind;
}

// Parameters of the checkpoint that are not in the table: other ranks' to read.
std::vector<std::string_view> parameters_elsewhere(const CheckpointManifest& manifest,
                                                   const ParameterTable& table) {
  std::vector<std::string_view> names;
  const auto& tensors = manifest.tensors;
  for (auto at = tensors.lower_bound(std::string(kParameterNames)); at != tensors.end(); ++at) {
    const std::string_view name = at->first;
    if (!name.starts_with(kParameterNames)) break;
    const std::string_view parameter = name.substr(kParameterNames.size());
    if (std::ranges::find(table, parameter, &ParameterInfo::name) == table.end()) {
      names.push_back(parameter);
    }
  }
  return names;
}

// By this rank of a replica.
bool is_written(std::string_view name, const ParameterTable& table, const EntryOwner& owner) {
  for (const std::string_view prefix : {kReduced, kGathered}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  const BoxedName of = boxed_name(table, name);
  return of.info == nullptr ? owner.writes_rest() : owner.writes(of.info->name);
}

class OldState {
 public:
  OldState(CheckpointReader& reader, std::span<const NamedTensor> own, const ParameterTable& table,
           int rank, std::set<std::string>& used)
      : reader_(reader),
        own_(own),
        table_(table),
        elsewhere_(parameters_elsewhere(reader.manifest(), table)),
        rank_(rank),
        used_(used) {}

  Result<LoadedState> load() {
    switch (state_form(own_)) {
      case StateForm::kReplicated: GW_TRY(load_gradients("")); break;
      case StateForm::kSharded: GW_TRY(load_sharded()); break;
      case StateForm::kOther: GW_TRY(load_all(method_of(rank_), "")); break;
    }
    return std::move(state_);
  }

 private:
  const std::map<std::string, CheckpointTensor>& saved() const {
    return reader_.manifest().tensors;
  }

  // Room for an entry of the state.
  Result<TensorView> add(std::string name, const Shape& shape, DType dtype) {
    const std::size_t bytes = static_cast<std::size_t>(shape.elems()) * size_of(dtype);
    GW_ASSIGN(Buffer memory, Buffer::allocate(bytes));
    const TensorView view = memory.tensor(shape, dtype);
    state_.memory.push_back(std::move(memory));
    state_.tensors.push_back({std::move(name), view});
    return view;
  }

  // Whether the checkpoint has the parameter, and in other boxes than the one that is here.
  bool moved(const ParameterInfo& info) {
    const auto known = moved_.find(&info);
    if (known != moved_.end()) return known->second;
    const TensorBox here = box_of(info);
    const std::vector<TensorBox> boxes = saved_boxes(reader_.manifest(), info.name);
    const auto same = [&](const TensorBox& box) {
      return box == here || (box.is_whole() && here.is_whole());
    };
    return moved_[&info] = !boxes.empty() && std::ranges::none_of(boxes, same);
  }

  // An entry of a parameter, in the box that is here; nothing of what fits other boxes.
  Status load_boxed(const std::string& name, const CheckpointTensor& saved, const BoxedName& of,
                    const std::string& as) {
    const TensorBox box = box_of(*of.info);
    const bool shaped = of.box.empty() && has_parameter_shape(of.kind, saved.dtype);
    if (moved(*of.info) && of.kind == kResidualState) {  // complete() joins it
      if (has(own_, as + of.info->name + std::string(kOwnResidual))) return {};
      return {Code::kInvalidArgument, "state '" + name + "' has no counterpart in this run"};
    }
    if (moved(*of.info) && !shaped) return {};
    if (!shaped && of.box != range_text(box)) return {};
    const bool cut = shaped && !box.is_whole();
    GW_ASSIGN(const TensorView view, add(as + of.info->name + "." + std::string(of.kind),
                                         cut ? box.shape() : saved.shape, saved.dtype));
    return cut ? reader_.read(name, box, 0, view) : reader_.read(name, view);
  }

  // An entry of a parameter that is not here; `of`: what it would be of those that are.
  bool is_elsewhere(std::string_view name, const BoxedName& of) const {
    const std::size_t known = of.info == nullptr ? 0 : of.info->name.size();
    return std::ranges::any_of(elsewhere_, [&](std::string_view parameter) {
      return parameter.size() > known && name.size() > parameter.size() &&
             name.starts_with(parameter) &&
             (name[parameter.size()] == '.' || name[parameter.size()] == '[');
    });
  }

  // All tensors of the replica behind `prefix`, but those of parameters that are elsewhere, behind
  // `as` from now on.
  Status load_replica(const std::string& prefix, const std::string& as) {
    for (auto at = saved().lower_bound(prefix); at != saved().end(); ++at) {
      const auto& [name, tensor] = *at;
      if (!name.starts_with(prefix)) break;
      const std::string_view entry = std::string_view(name).substr(prefix.size());
      const BoxedName of = boxed_name(table_, entry);
      if (is_elsewhere(entry, of)) continue;
      if (of.info == nullptr) {
        GW_ASSIGN(const TensorView view,
                  add(as + name.substr(prefix.size()), tensor.shape, tensor.dtype));
        GW_TRY(reader_.read(name, view));
      } else {
        GW_TRY(load_boxed(name, tensor, of, as));
      }
    }
    for (const NamedTensor& own : own_) {
      if (!own.name.starts_with(as)) continue;
      const BoxedName of = boxed_name(table_, std::string_view(own.name).substr(as.size()));
      if (of.info != nullptr && moved(*of.info)) GW_TRY(complete(own, of, prefix));
    }
    return {};
  }

  // State of a box that no old rank had. Its residual is joined from theirs, what owners owed of
  // the sum included; all else is as in a run that begins.
  Status complete(const NamedTensor& own, const BoxedName& of, const std::string& prefix) {
    if (find(own.name) != nullptr || of.kind == kResidualScales) return {};
    if (of.kind == kResidualState) return join(own, *of.info, prefix);
    state_.begun.push_back(own.name);
    for (const std::string_view kind : kOwnedKinds) {
      const bool scales = of.kind == std::string(kind) + std::string(kScale);
      if (of.kind != kind && !scales) continue;
      // As long as the old owner's: on other replicas it is cut anew.
      const std::int64_t elems = box_of(*of.info).elems();
      const std::int64_t part = piece(elems, reader_.manifest().position.mesh.dp, rank_).size();
      const Shape shape = Shape::vector(scales ? blocks_of(part) : part);
      GW_ASSIGN(const TensorView view, add(own.name, shape, own.tensor.dtype()));
      std::ranges::fill(view.bytes(), std::byte{0});
      return {};
    }
    GW_ASSIGN(const TensorView view, add(own.name, own.tensor.shape(), own.tensor.dtype()));
    std::ranges::copy(own.tensor.bytes(), view.bytes().begin());
    return {};
  }

  Status join(const NamedTensor& own, const ParameterInfo& info, const std::string& prefix) {
    GW_ASSIGN(const std::vector<double> sum, joined_residual(reader_, prefix, info, rank_));
    GW_ASSIGN(const TensorView values, add(own.name, own.tensor.shape(), own.tensor.dtype()));
    TensorView scales = values;
    if (values.dtype() == DType::kI8) {
      const Shape blocks = Shape::vector(blocks_of(values.elems()));
      GW_ASSIGN(scales, add(own.name + std::string(kScale), blocks, DType::kF32));
    }
    put_stored_values(sum, values, scales);
    return {};
  }

  // All tensors behind `prefix`, behind `as` from now on.
  Status load_all(const std::string& prefix, const std::string& as) {
    for (auto at = saved().lower_bound(prefix); at != saved().end(); ++at) {
      const auto& [name, tensor] = *at;
      if (!name.starts_with(prefix)) break;
      GW_ASSIGN(const TensorView view,
                add(as + name.substr(prefix.size()), tensor.shape, tensor.dtype));
      GW_TRY(reader_.read(name, view));
    }
    return {};
  }

  NamedTensor* find(const std::string& name) {
    for (NamedTensor& entry : state_.tensors) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }
  // The scales of an int8 residual; of another, the residual itself, which nobody looks at.
  TensorView scales_of(const NamedTensor& entry) {
    const NamedTensor* scales = find(entry.name + ".scale");
    return scales == nullptr ? entry.tensor : scales->tensor;
  }

  // What the owner owes of its piece of the sum becomes its own residual's.
  void fold(const NamedTensor& owed, const NamedTensor& residual) {
    const std::int64_t elems = residual.tensor.elems();
    const auto ranks = static_cast<int>(reader_.manifest().position.mesh.dp);
    const Range mine = piece(elems, ranks, rank_);
    if (mine.size() != owed.tensor.elems()) return;  // refused as superfluous
    std::vector<double> sum(static_cast<std::size_t>(elems));
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = stored_value(residual.tensor, scales_of(residual), i);
    }
    for (std::int64_t i = 0; i < mine.size(); ++i) {
      sum[static_cast<std::size_t>(mine.begin + i)] +=
          stored_value(owed.tensor, scales_of(owed), static_cast<std::size_t>(i));
    }
    put_stored_values(sum, residual.tensor, scales_of(residual));
  }

  Status load_gradients(const std::string& as) {
    GW_TRY(load_replica(gradients_of(rank_), as));
    std::set<std::string> folded;
    for (const NamedTensor& entry : state_.tensors) {
      if (!entry.name.ends_with(kOwed) || has(own_, entry.name)) continue;
      const std::string name = entry.name.substr(0, entry.name.size() - 1);
      const NamedTensor* residual = find(name);
      if (residual == nullptr || !has(own_, name)) continue;
      fold(entry, *residual);
      folded.insert({entry.name, entry.name + ".scale"});
    }
    std::erase_if(state_.tensors,
                  [&](const NamedTensor& entry) { return folded.contains(entry.name); });
    return {};
  }

  Status load_sharded() {
    for (const NamedTensor& own : own_) {
      if (own.name == kSharedSteps) {
        GW_ASSIGN(const TensorView view, add(own.name, Shape::vector(1), DType::kI64));
        GW_ASSIGN(elements<std::int64_t>(view)[0], saved_optimizer_steps(reader_));
      } else if (own.name.find('/') == std::string::npos) {
        GW_TRY(load_shard(own));
      }
    }
    GW_TRY(load_gradients(std::string(kReduced)));
    const std::size_t before = state_.tensors.size();
    GW_TRY(load_replica(gathers_of(rank_), std::string(kGathered)));
    return state_.tensors.size() == before ? begin_gathers() : Status();
  }

  // The old rank's shard, out of whatever slices there are.
  Status load_shard(const NamedTensor& own) {
    const ParameterState of = parameter_state(table_, own.name);
    if (of.info == nullptr) return {};  // loading says that it is missing
    std::string from = shard_name(of);
    // Who stepped the whole model has no other copy of its parameters.
    if (of.kind == kShard && !saved().contains(from))
      from = std::string(kParameterNames) + of.info->name;
    used_.insert(from);
    const TensorBox box = box_of(*of.info);
    const auto ranks = static_cast<int>(reader_.manifest().position.mesh.dp);
    const Range mine = piece(box.elems(), ranks, rank_);
    GW_ASSIGN(const TensorView view, add(own.name, Shape::vector(mine.size()), own.tensor.dtype()));
    return reader_.read(from, box, mine.begin, view);
  }

  // Of a run that gathered nothing: as many steps as the optimizer's, and what there is besides as
  // in a run that begins.
  Status begin_gathers() {
    GW_ASSIGN(const std::int64_t steps, saved_optimizer_steps(reader_));
    for (const NamedTensor& own : own_) {
      if (!own.name.starts_with(kGathered)) continue;
      GW_ASSIGN(const TensorView view, add(own.name, own.tensor.shape(), own.tensor.dtype()));
      std::ranges::copy(own.tensor.bytes(), view.bytes().begin());
      if (own.name.ends_with(kAggregatorSteps)) elements<std::int64_t>(view)[0] = steps;
    }
    return {};
  }

  CheckpointReader& reader_;
  std::span<const NamedTensor> own_;
  const ParameterTable& table_;
  std::vector<std::string_view> elsewhere_;
  int rank_;
  std::set<std::string>& used_;
  std::map<const ParameterInfo*, bool> moved_;
  LoadedState state_;
};

}  // namespace

StateForm state_form(std::span<const NamedTensor> state) {
  if (has(state, kSharedSteps)) return StateForm::kSharded;
  return has(state, kAggregatorSteps) ? StateForm::kReplicated : StateForm::kOther;
}

ParameterState parameter_state(const ParameterTable& table, const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {};
  const std::string_view parameter = std::string_view(name).substr(0, dot);
  for (const ParameterInfo& info : table) {
    if (info.name == parameter) return {&info, name.substr(dot + 1)};
  }
  return {};
}

std::vector<TensorPart> strategy_parts(std::span<const NamedTensor> state,
                                       const ParameterTable& table, int replica, int replicas,
                                       const EntryOwner& owner) {
  const StateForm form = state_form(state);
  std::vector<TensorPart> parts;
  for (const NamedTensor& own : state) {
    const std::string& name = own.name;
    const ParameterState of = parameter_state(table, name);
    if (form != StateForm::kOther && !is_written(name, table, owner)) continue;
    if (form == StateForm::kOther) {
      parts.push_back(whole_part(method_of(replica) + name, own.tensor));
    } else if (form == StateForm::kReplicated) {
      parts.push_back(gradient_part(gradients_of(replica), name, own.tensor, table));
    } else if (name == kSharedSteps) {
      if (replica == 0) parts.push_back(whole_part(std::string(kOptimizerSteps), own.tensor));
    } else if (name.starts_with(kReduced)) {
      parts.push_back(
          gradient_part(gradients_of(replica), name.substr(kReduced.size()), own.tensor, table));
    } else if (name.starts_with(kGathered)) {
      parts.push_back(
          gradient_part(gathers_of(replica), name.substr(kGathered.size()), own.tensor, table));
    } else if (of.info != nullptr) {
      const TensorBox box = box_of(*of.info);
      parts.push_back({shard_name(of), box, piece(box.elems(), replicas, replica).begin,
                       ConstTensorView(own.tensor)});
    } else {
      parts.push_back(whole_part(method_of(replica) + name, own.tensor));
    }
  }
  return parts;
}

Result<LoadedState> load_old_state(CheckpointReader& reader, std::span<const NamedTensor> own,
                                   const ParameterTable& table, int rank,
                                   std::set<std::string>& used) {
  return OldState(reader, own, table, rank, used).load();
}

Result<std::int64_t> saved_optimizer_steps(CheckpointReader& reader) {
  if (reader.manifest().tensors.contains(std::string(kOptimizerSteps))) {
    std::int64_t steps = 0;
    GW_TRY(reader.read(std::string(kOptimizerSteps), view_of(std::span(&steps, 1))));
    return steps;
  }
  std::array<std::int64_t, kPositionNumbers> numbers{};
  GW_TRY(reader.read(kPositionName, view_of(std::span<std::int64_t>(numbers))));
  return numbers[kPositionSteps];
}

}  // namespace gradwire
