#include "adapters/trainer/training_checkpoint.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "adapters/trainer/agreement.h"
#include "adapters/trainer/boxed_state.h"
#include "adapters/trainer/first_version.h"
#include "adapters/trainer/own_momentum.h"
#include "adapters/trainer/restarted_state.h"
#include "adapters/trainer/strategy_state.h"
#include "aggregate/plan/key_names.h"
#include "base/elements.h"
#include "base/mesh.h"
#include "base/text.h"
#include "device/host_copy.h"
#include "trainer/precision.h"

namespace gradwire {
namespace {

constexpr std::string_view kBuffers = "buffers/";
constexpr std::string_view kTrainer = "trainer/";
constexpr std::string_view kPosition = "trainer.position";
constexpr const char* kStepsKey = "steps";
constexpr const char* kSchedule = "lr-schedule";
constexpr std::string_view kWorker = "worker";  // Trainer::state(): "worker2.fc1.weight.momentum"

std::string worker_name(int worker, std::string_view name) {
  return "worker-" + std::to_string(worker) + "/" + std::string(name);
}

// A worker's own tensor: which of the rank's micro-batches, and what the tensor is called.
struct WorkerEntry {
  int micro;
  std::string_view name;
};
std::optional<WorkerEntry> worker_entry(std::string_view name) {
  const std::size_t dot = name.find('.');
  if (!name.starts_with(kWorker) || dot == std::string_view::npos) return std::nullopt;
  const auto micro = to_int(name.substr(kWorker.size(), dot - kWorker.size()));
  if (!micro || *micro < 0 || *micro > 1 << 20) return std::nullopt;
  return WorkerEntry{static_cast<int>(*micro), name.substr(dot + 1)};
}

// Views of no memory have a shape all the same.
TensorPart part_of(std::string name, const TensorView& values) {
  if (values.elems() == 0)
    return {std::move(name), TensorBox::of(Shape::vector(0)), 0, ConstTensorView(values)};
  return whole_tensor(std::move(name), values);
}

// What has an element for each of a parameter's that is here.
TensorPart boxed_part(std::string name, const ParameterInfo& info, const TensorView& values) {
  return {std::move(name), box_of(info), 0, ConstTensorView(values)};
}

const ParameterInfo& info_of(const ParameterTable& table, std::string_view parameter) {
  return *std::ranges::find(table, parameter, &ParameterInfo::name);
}

// The optimizer's state of a parameter has the parameter's shape.
TensorPart trainer_part(const ParameterTable& table, const NamedTensor& own) {
  const ParameterState of = parameter_state(table, own.name);
  if (of.info == nullptr || own.tensor.elems() == 0) {
    return part_of(std::string(kTrainer) + own.name, own.tensor);
  }
  return boxed_part(std::string(kOptimizerNames) + own.name, *of.info, own.tensor);
}

// A line for each, behind a letter; no name has a line's end in it.
std::string as_lines(char letter, const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += letter + name + "\n";
  return text;
}
std::set<std::string> names_in(const std::vector<std::string>& texts, char letter) {
  std::set<std::string> names;
  for (const std::string& text : texts) {
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      if (text[begin] == letter) names.insert(text.substr(begin + 1, end - begin - 1));
    }
  }
  return names;
}
constexpr char kUsed = 'u';
constexpr char kBegun = 'b';

// Nothing that was saved of the model and its training is left behind silently: what no rank uses.
Status check_nothing_left(const CheckpointReader& reader, const std::set<std::string>& used,
                          bool leaves_momentum) {
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    const bool ours = name.starts_with(kParameterNames) || name.starts_with(kBuffers) ||
                      name.starts_with(kTrainer) || name.starts_with(kOptimizerNames);
    if (!ours || used.contains(name) || (leaves_momentum && is_momentum(name))) continue;
    return {Code::kInvalidArgument,
            reader.path() + ": tensor '" + name + "' has no counterpart in this run"};
  }
  return {};
}

// A run of another length has other rates from its first step on.
Status check_same_rates(const std::map<std::string, std::string>& settings,
                        const TrainingCheckpointOptions& options) {
  if (!options.schedule.depends_on_total()) return {};
  const auto steps = settings.find(kStepsKey);
  const auto schedule = settings.find(kSchedule);
  if (steps == settings.end() || schedule == settings.end()) return {};  // of an older version
  const std::string here = std::to_string(options.steps);
  if (schedule->second != options.schedule.text() || steps->second == here) return {};
  return {Code::kInvalidArgument,
          "it belongs to a run of " + steps->second + " steps, whose rates --lr-schedule " +
              schedule->second + " spreads over all of them (got " + here + " steps, expected " +
              steps->second + "; to train for longer, say another --lr-schedule too)"};
}

// "compressor", "optimizer-compressor", ...: a checkpoint may hold a key under its old name.
bool same_spec(std::string_view name, const std::string& there, const std::string& here) {
  return name.ends_with("compressor") && with_present_keys(there) == with_present_keys(here);
}

int workers_in(const CheckpointManifest& manifest, std::string_view name) {
  int count = 0;
  while (manifest.tensors.contains(worker_name(count, name))) ++count;
  return count;
}

}  // namespace

Status check_same_settings(const CheckpointManifest& manifest,
                           const TrainingCheckpointOptions& options) {
  const auto other = [](const std::string& name, const std::string& seen, const std::string& here) {
    return Status(Code::kInvalidArgument, "it was trained with " + name + " " + seen +
                                              " (expected " + here + ", as in this run)");
  };
  const auto& settings = manifest.settings;
  for (const auto& [name, value] : options.must_match) {
    const auto found = settings.find(name);
    const std::string seen = found == settings.end() ? "none" : found->second;
    if (seen != value && !same_spec(name, seen, value)) return other(name, seen, value);
  }
  for (const auto& [name, value] : options.match_if_known) {
    const auto found = settings.find(name);
    if (found != settings.end() && found->second != value) return other(name, found->second, value);
  }
  return check_same_rates(settings, options);
}

std::map<std::string, std::string> settings_of(const TrainingCheckpointOptions& options) {
  std::map<std::string, std::string> settings = options.must_match;
  settings.insert(options.notes.begin(), options.notes.end());
  settings.insert(options.match_if_known.begin(), options.match_if_known.end());
  settings.insert(options.carried.begin(), options.carried.end());
  settings[kStepsKey] = std::to_string(options.steps);
  settings[kSchedule] = options.schedule.text();
  return settings;
}

ResumedFrom resumed_from(const std::string& path, const CheckpointManifest& manifest,
                         const std::map<std::string, std::string>& notes) {
  ResumedFrom from{
      path, manifest.position.step, static_cast<int>(manifest.position.mesh.ranks()), {}, {}};
  for (const auto& [name, now] : notes) {
    const auto before = manifest.settings.find(name);
    if (before != manifest.settings.end() && before->second != now) from.was.insert(*before);
  }
  return from;
}

// Of this rank's place in its replica, and in the data: state beside the strategy's.
std::vector<TensorPart> TrainingCheckpoint::trainer_parts(const EntryOwner& owner) {
  const ParameterTable table = trainer_.memory().table;
  const bool first = place().dp == 0;  // replicas are equal
  std::vector<TensorPart> mine;
  for (const NamedTensor& own : trainer_.buffers()) {
    if (first && place().tp == 0) {
      mine.push_back(part_of(std::string(kBuffers) + own.name, own.tensor));
    }
  }
  for (const NamedTensor& own : trainer_.state()) {
    const auto worker = worker_entry(own.name);
    const std::string name(worker ? worker->name : own.name);
    const ParameterState of = parameter_state(table, name);
    if (of.info != nullptr ? !owner.writes(of.info->name) : !owner.writes_rest()) continue;
    if (worker) {
      std::string in_file = worker_name(worker_number(worker->micro), name);
      mine.push_back(of.info == nullptr ? part_of(std::move(in_file), own.tensor)
                                        : boxed_part(std::move(in_file), *of.info, own.tensor));
    } else if (first) {
      mine.push_back(trainer_part(table, own));
    }
  }
  return mine;
}

Result<std::vector<TensorPart>> TrainingCheckpoint::parts() {
  const ParameterTable table = trainer_.memory().table;
  const EntryOwner owner(trainer_.memory().share, place());
  std::vector<TensorPart> mine;
  GW_ASSIGN(const auto sharded, strategy_.keeper().own_parameters());
  for (const TensorPart& part : sharded.value_or(std::vector<TensorPart>())) {
    if (!owner.writes(part.tensor)) continue;
    mine.push_back(part);
    mine.back().tensor = std::string(kParameterNames) + part.tensor;
  }
  for (const NamedTensor& own : trainer_.parameters()) {
    if (sharded || place().dp > 0 || !owner.writes(own.name)) continue;
    mine.push_back(
        boxed_part(std::string(kParameterNames) + own.name, info_of(table, own.name), own.tensor));
  }
  std::ranges::move(trainer_parts(owner), std::back_inserter(mine));
  std::ranges::move(strategy_parts(strategy_.state(), table, place().dp, mesh().dp, owner),
                    std::back_inserter(mine));
  return mine;
}

Status TrainingCheckpoint::save(double learning_rate, double loss_scale) {
  if (!strategy_.replicas_equal()) {
    return {Code::kInvalidArgument,
            "checkpoint: the ranks hold different parameters between their exchanges; save after "
            "one of them"};
  }
  CheckpointPosition position;
  position.step = trainer_.steps_done();
  position.consumed_samples = position.step * options_.batch;
  position.seed = options_.seed;
  position.mesh = mesh();
  position.learning_rate = learning_rate;
  position.loss_scale = loss_scale;
  GW_ASSIGN(const std::vector<TensorPart> mine, parts());
  return checkpoints_.save(position, settings_of(options_), mine).with_context("checkpoint");
}

// Momenta follow their worker where all workers are still there, else all have their average.
Status TrainingCheckpoint::restore_worker(CheckpointReader& reader, int micro,
                                          const NamedTensor& own) const {
  const int old_workers = workers_in(reader.manifest(), own.name);
  const ParameterTable table = trainer_.memory().table;
  const ParameterState of = parameter_state(table, own.name);
  const auto read = [&](int worker, const TensorView& to) {
    const std::string name = worker_name(worker, own.name);
    return of.info == nullptr ? reader.read(name, to) : reader.read(name, box_of(*of.info), 0, to);
  };
  if (old_workers == shares().micro_batches() || old_workers == 0) {
    return read(worker_number(micro), own.tensor);
  }
  GW_ASSIGN(const Buffer memory, Buffer::allocate(own.tensor.bytes().size()));
  const TensorView one = memory.tensor(own.tensor.shape(), own.tensor.dtype());
  const std::span<float> mean = elements<float>(one);
  std::vector<double> sum(mean.size());
  for (int worker = 0; worker < old_workers; ++worker) {
    GW_TRY(read(worker, one));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(mean[i]);
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    mean[i] = static_cast<float>(sum[i] / old_workers);
  }
  return write_from_host(one.bytes(), own.tensor);
}

Status TrainingCheckpoint::restore_strategy(CheckpointReader& reader, Taken& taken) {
  const auto& tensors = reader.manifest().tensors;
  const int old_ranks = reader.manifest().position.mesh.dp;
  // Between nodes others' state matters even to a job of as many ranks: its nodes may be others.
  const bool levels = std::any_of(tensors.begin(), tensors.end(), [](const auto& entry) {
    return entry.first.find(".outer.") != std::string::npos;
  });
  const bool own_alone = old_ranks == mesh().dp && !levels;
  const std::vector<NamedTensor> own = strategy_.state();
  const ParameterTable table = trainer_.memory().table;
  std::vector<LoadedState> states;
  std::vector<std::vector<NamedTensor>> by_old_rank(static_cast<std::size_t>(old_ranks));
  for (int rank = 0; rank < old_ranks; ++rank) {
    if (own_alone && rank != place().dp) continue;
    GW_ASSIGN(LoadedState state, load_old_state(reader, own, table, rank, taken.used));
    taken.begun.insert(state.begun.begin(), state.begun.end());
    by_old_rank[static_cast<std::size_t>(rank)] = state.tensors;
    // As many ranks as there were take from others only what all have alike.
    if (own_alone) std::fill(by_old_rank.begin(), by_old_rank.end(), state.tensors);
    states.push_back(std::move(state));
  }
  for (std::string& name : factors_of_new_ranges(own, by_old_rank)) {
    taken.begun.insert(std::move(name));
  }
  return strategy_.load_state(by_old_rank);
}

// The optimizer's state by its shape, at any stage and in any slices.
Status TrainingCheckpoint::restore_trainer(CheckpointReader& reader, std::set<std::string>& used) {
  const ParameterTable table = trainer_.memory().table;
  const std::string steps = std::string(kOptimizerSteps);
  for (const NamedTensor& own : trainer_.state()) {
    const ParameterState of = parameter_state(table, own.name);
    if (const auto worker = worker_entry(own.name)) {
      GW_TRY(restore_worker(reader, worker->micro, {std::string(worker->name), own.tensor}));
    } else if (of.info != nullptr) {
      const std::string name = std::string(kOptimizerNames) + own.name;
      used.insert(name);
      if (own.tensor.elems() == 0) continue;
      GW_TRY(reader.read(name, box_of(*of.info), 0, own.tensor));
    } else {
      const std::string name = std::string(kTrainer) + own.name;
      used.insert(name);
      GW_TRY(reader.read(name, own.tensor));
      if (own.name != kPosition) continue;
      // Of a run whose owners stepped shards the trainer's own optimizer made none.
      GW_ASSIGN(elements<std::int64_t>(own.tensor).back(), saved_optimizer_steps(reader));
    }
  }
  used.insert(steps);
  return {};
}

namespace {

// Parameters are saved in fp32; those that the trainer holds in 16 bits are rounded.
Status read_rounded(CheckpointReader& reader, const std::string& name, const TensorBox& box,
                    const TensorView& to) {
  const Precision precision = precision_of(to.dtype());
  if (precision == Precision::kF32) return reader.read(name, box, 0, to);
  std::vector<float> wide(static_cast<std::size_t>(to.elems()));
  const TensorView values(reinterpret_cast<std::byte*>(wide.data()), to.shape(), DType::kF32);
  GW_TRY(reader.read(name, box, 0, values));
  return write_from_host(std::as_bytes(store_in_place(precision, wide)), to);
}

}  // namespace

Status TrainingCheckpoint::restore(CheckpointReader& reader, Taken& taken) {
  GW_TRY(check_same_settings(reader.manifest(), options_).with_context(reader.path()));
  const ParameterTable table = trainer_.memory().table;
  // Owners of shards hold what their optimizers step beside what passes see of it; who steps the
  // whole model goes on from the former.
  const bool sharded = state_form(strategy_.state()) == StateForm::kSharded;
  for (const NamedTensor& own : trainer_.parameters()) {
    const bool master = reader.manifest().tensors.contains(std::string(kMasterNames) + own.name);
    const std::string name =
        std::string(master && !sharded ? kMasterNames : kParameterNames) + own.name;
    taken.used.insert({name, std::string(kParameterNames) + own.name});
    if (own.tensor.elems() == 0) continue;
    GW_TRY(read_rounded(reader, name, box_of(info_of(table, own.name)), own.tensor));
  }
  for (const NamedTensor& own : trainer_.buffers()) {
    const std::string name = std::string(kBuffers) + own.name;
    taken.used.insert(name);
    if (own.tensor.elems() > 0) GW_TRY(reader.read(name, own.tensor));
  }
  GW_TRY(restore_trainer(reader, taken.used));
  GW_TRY(restore_strategy(reader, taken).with_context(reader.path()));
  GW_TRY(trainer_.adopt_state().with_context(reader.path()));
  const std::int64_t step = reader.manifest().position.step;
  if (trainer_.steps_done() != step) {
    return {Code::kCorruptPayload,
            format("%s: its trainer has done %lld steps (expected %lld, as the manifest says)",
                   reader.path().c_str(), static_cast<long long>(trainer_.steps_done()),
                   static_cast<long long>(step))};
  }
  if (step > trainer_.steps()) {
    return {
        Code::kInvalidArgument,
        format("%s is after %lld steps, and the run ends after %lld (expected at least as many)",
               reader.path().c_str(), static_cast<long long>(step),
               static_cast<long long>(trainer_.steps()))};
  }
  return {};
}

Result<std::optional<ResumedFrom>> TrainingCheckpoint::resume() {
  GW_ASSIGN(std::optional<CheckpointReader> last, checkpoints_.open_last());
  if (!last) return std::optional<ResumedFrom>();
  last->describe_as(with_present_names(last->manifest()));
  Taken taken;
  const Status restored = restore(*last, taken);
  // Replicas take the same.
  const std::string told =
      place().dp > 0 ? "" : as_lines(kUsed, taken.used) + as_lines(kBegun, taken.begun);
  GW_ASSIGN(const std::vector<std::string> all,
            share_outcome(communicator_, restored, told, options_.files.seconds));
  GW_TRY(check_nothing_left(*last, names_in(all, kUsed), options_.leaves_momentum));
  strategy_.continue_from(trainer_.steps_done());
  ResumedFrom from = resumed_from(last->path(), last->manifest(), options_.notes);
  const std::set<std::string> begun = names_in(all, kBegun);
  from.notices =
      restart_notices(restarted_among(std::vector<std::string>(begun.begin(), begun.end())));
  return std::optional<ResumedFrom>(std::move(from));
}

}  // namespace gradwire
