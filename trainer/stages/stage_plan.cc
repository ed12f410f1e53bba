#include "trainer/stages/stage_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "trainer/pipeline/cut_layers.h"
#include "trainer/pipeline/generators/generators.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/message_room.h"

namespace gradwire {
namespace {

// Two pipes, of which each takes half of the micro-batches.
bool goes_both_ways(const PipelineSchedule& schedule) {
  const int half = schedule.micro_batches / 2;
  if (schedule.size() % 2 != 0 || 2 * half != schedule.micro_batches) return false;
  if (schedule.rank_of != both_ways_placement(schedule.size(), 1).rank_of) return false;
  return std::ranges::all_of(schedule.ranks, [&](const auto& ops) {
    return std::ranges::all_of(ops, [&](const PipelineOp& op) {
      return op.micro == PipelineOp::kNoMicro || (op.micro >= half) == (op.pipe == 1);
    });
  });
}

Status check_served(const PipelineSchedule& schedule, bool gathers) {
  if (schedule.pipes() != 1 && !goes_both_ways(schedule)) {
    return {Code::kUnsupported,
            format("a schedule of %d pipes (stages serve 1, or chimera's placement with half of "
                   "the micro-batches in each)",
                   schedule.pipes())};
  }
  if (schedule.pipes() != 1 && gathers) {
    return {Code::kUnsupported,
            "parameters that are gathered for stages of two pipes (expected whole ones)"};
  }
  for (const auto& ops : schedule.ranks) {
    for (const PipelineOp& op : ops) {
      const bool served = is_compute(op.kind) && op.kind != PipelineOpKind::kRecompute;
      if (served && op.version == 0) continue;
      return {Code::kUnsupported,
              format("%s in a schedule (stages serve F, B, I and W of version 0)",
                     to_string(op).c_str())};
    }
  }
  return {};
}

// With UNSHARD before every stage's first operation and RESHARD behind its last one.
PipelineSchedule with_gathers(const PipelineSchedule& schedule) {
  PipelineSchedule gathered = schedule;
  for (std::vector<PipelineOp>& ops : gathered.ranks) {
    std::map<int, std::size_t> last;  // by stage
    for (std::size_t i = 0; i < ops.size(); ++i) last[ops[i].stage] = i;
    std::vector<PipelineOp> whole;
    std::set<int> begun;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      PipelineOp gather{.kind = PipelineOpKind::kUnshard, .stage = ops[i].stage};
      if (begun.insert(ops[i].stage).second) whole.push_back(gather);
      whole.push_back(ops[i]);
      gather.kind = PipelineOpKind::kReshard;
      if (last[ops[i].stage] == i) whole.push_back(gather);
    }
    ops = std::move(whole);
  }
  return gathered;
}

// Runs of layers that stay together: each begins with one that has parameters, but for the first,
// which begins with the data. So every stage has some.
struct LayerRuns {
  std::vector<std::size_t> begins;
  std::vector<std::int64_t> costs;  // products of forward and backward, 1 for each layer beside
};

LayerRuns layer_runs(const Model<float>& model) {
  LayerRuns runs;
  bool has_parameters = true;  // the run so far
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    const auto [first, end] = model.parameters_of(layer);
    if (layer == 0 || (end > first && has_parameters)) {
      runs.begins.push_back(layer);
      runs.costs.push_back(0);
      has_parameters = false;
    }
    has_parameters = has_parameters || end > first;
    const LayerCost cost = model.layer(layer).cost();
    runs.costs.back() += cost.forward_macs + cost.input_macs + cost.weight_macs + 1;
  }
  return runs;
}

bool has_parameters(const Model<float>& model, const Range& layers) {
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const auto [first, end] = model.parameters_of(static_cast<std::size_t>(layer));
    if (end > first) return true;
  }
  return false;
}

// The first ones and the last one of many.
std::string layer_names(const Model<float>& model) {
  constexpr std::size_t kMost = 12;
  std::string names;
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    const bool last = layer + 1 == model.layers();
    if (layer == kMost && !last) names += ", ...";
    if (layer < kMost || last) names += (names.empty() ? "" : ", ") + model.layer_name(layer);
  }
  return names;
}

// Stages of as many layers as a user has said.
Result<std::vector<LayerRange>> cut_model(const Model<float>& model,
                                          const std::vector<int>& counts) {
  const auto cut = cut_by_counts(counts, static_cast<std::int64_t>(model.layers()));
  if (!cut.has_value()) return cut.error().with_context("layers " + layer_names(model));
  const std::vector<Range>& cuts = cut.value();
  std::vector<LayerRange> layers;
  for (const Range& cut : cuts) {
    if (!has_parameters(model, cut)) {
      return Status(Code::kInvalidArgument,
                    format("stages=%s: stage %zu has layers %lld to %lld (%s), without parameters "
                           "(expected some in every stage)",
                           layer_counts_text(counts).c_str(), layers.size(),
                           static_cast<long long>(cut.begin), static_cast<long long>(cut.end - 1),
                           model.layer_name(static_cast<std::size_t>(cut.begin)).c_str()));
    }
    layers.push_back({static_cast<std::size_t>(cut.begin), static_cast<std::size_t>(cut.end)});
  }
  return layers;
}

// The layers of each stage.
Result<std::vector<LayerRange>> cut_model(const Model<float>& model, int stages) {
  LayerRuns runs = layer_runs(model);
  if (runs.begins.size() < static_cast<std::size_t>(stages)) {
    return Status(Code::kInvalidArgument,
                  format("%d stages of a model with %zu layers that have parameters (expected at "
                         "most one stage for each)",
                         stages, runs.begins.size()));
  }
  GW_ASSIGN(const std::vector<Range> cuts, cut_layers(runs.costs, stages));
  runs.begins.push_back(model.layers());
  std::vector<LayerRange> layers;
  for (const Range& cut : cuts) {
    layers.push_back({runs.begins[static_cast<std::size_t>(cut.begin)],
                      runs.begins[static_cast<std::size_t>(cut.end)]});
  }
  return layers;
}

StageRoom larger(const StageRoom& a, const StageRoom& b) {
  return {std::max(a.activations_in, b.activations_in),
          std::max(a.activations_out, b.activations_out), std::max(a.gradients_in, b.gradients_in),
          std::max(a.gradients_out, b.gradients_out)};
}

// Evaluation has no more messages than training where its forwards may wait. Over ordered links a
// message may be made long before its turn to be sent.
void bound_messages(StagePlan& plan, const MessageRoom& training, const MessageRoom& forwards) {
  plan.how.room = training.stages;
  plan.evaluation.room = forwards.stages;
  const bool waits = plan.how.links == PipelineLinks::kTagged && forwards_may_wait(plan.forwards);
  for (StagePlace& place : plan.stages) {
    const auto at = static_cast<std::size_t>(place.stage);
    StageRoom& evaluation = plan.evaluation.room[at];
    if (waits) {
      evaluation.activations_out =
          std::min(plan.how.room[at].activations_out, evaluation.activations_out);
    }
    place.room = larger(plan.how.room[at], evaluation);
  }
}

}  // namespace

std::vector<std::size_t> stage_begins(const Model<float>& model) {
  return layer_runs(model).begins;
}

int most_unjoined(const std::vector<PipelineOp>& ops, std::size_t stages, int micro_batches,
                  int first) {
  std::vector<std::size_t> left(static_cast<std::size_t>(micro_batches), stages);
  std::size_t joined = 0;
  int now = 0;
  int most = 0;
  for (const PipelineOp& op : ops) {
    if (!gives_weight_gradient(op.kind)) continue;
    const int micro = op.micro % micro_batches;
    const auto at = static_cast<std::size_t>(micro);
    if (left[at] == stages && micro >= first) most = std::max(most, ++now);
    --left[at];
    for (; joined < left.size() && left[joined] == 0; ++joined) {
      now -= static_cast<int>(joined) >= first ? 1 : 0;
    }
  }
  return most;
}

std::size_t most_contexts(const std::vector<PipelineOp>& ops, int stage) {
  std::size_t open = 0;
  std::size_t most = 0;
  for (const PipelineOp& op : ops) {
    if (op.stage != stage) continue;
    if (op.kind == PipelineOpKind::kForward) most = std::max(most, ++open);
    if (gives_weight_gradient(op.kind)) --open;
  }
  return most;
}

std::vector<LayerRange> StagePlan::layers() const {
  std::vector<LayerRange> ranges;
  for (const StagePlace& place : stages) ranges.push_back(place.layers);
  return ranges;
}

namespace {

int stage_of_layer(const StagePlan& plan, std::size_t layer) {
  const auto at = std::ranges::find_if(
      plan.cuts, [&](const LayerRange& cut) { return layer >= cut.begin && layer < cut.end; });
  return static_cast<int>(at - plan.cuts.begin());
}

std::size_t layer_of_parameter(const Model<float>& model, int parameter) {
  std::size_t layer = 0;
  while (model.parameters_of(layer).second <= parameter) ++layer;
  return layer;
}

// Names of parameters that layers on another rank than the owner's are tied to.
Result<std::vector<std::string>> shared_parameters(const Model<float>& model,
                                                   const StagePlan& plan) {
  std::vector<std::string> shared;
  const std::vector<int>& rank_of = plan.schedule.rank_of.front();
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    const int parameter = model.tied_to(layer);
    if (parameter < 0) continue;
    const int user = stage_of_layer(plan, layer);
    const int owner = stage_of_layer(plan, layer_of_parameter(model, parameter));
    const int user_rank = rank_of[static_cast<std::size_t>(user)];
    const int owner_rank = rank_of[static_cast<std::size_t>(owner)];
    if (plan.place_of(user_rank) == plan.place_of(owner_rank)) continue;
    const std::string& name = model.parameters()[static_cast<std::size_t>(parameter)].name;
    const bool ends = owner == 0 && user == plan.schedule.stages() - 1;
    if (!ends || owner_rank != 0 || user_rank != plan.schedule.size() - 1) {
      return Status(Code::kUnsupported,
                    format("layer %s of stage %d on rank %d is tied to %s of stage %d on rank %d "
                           "(stages serve the last one on the last rank, tied to the first on the "
                           "first)",
                           model.layer_name(layer).c_str(), user, user_rank, name.c_str(), owner,
                           owner_rank));
    }
    if (std::ranges::find(shared, name) == shared.end()) shared.push_back(name);
  }
  return shared;
}

}  // namespace

std::vector<std::vector<LayerRange>> layers_by_rank(const StagePlan& plan) {
  std::vector<std::vector<LayerRange>> layers(static_cast<std::size_t>(plan.places()));
  const std::vector<int>& rank_of = plan.schedule.rank_of.front();
  for (std::size_t stage = 0; stage < plan.cuts.size(); ++stage) {
    layers[static_cast<std::size_t>(plan.place_of(rank_of[stage]))].push_back(plan.cuts[stage]);
  }
  return layers;
}

ModelShare share_of_stages(const Model<float>& model, const StagePlan& plan) {
  std::vector<ParameterTable> held;
  for (const std::vector<LayerRange>& ranges : layers_by_rank(plan)) {
    held.push_back(model.part(ranges).parameters());
  }
  return share_of_tables(model.parameters(), held, plan.place_of(plan.rank));
}

namespace {

// What is the same on all ranks.
Result<StagePlan> common_plan(const Model<float>& model, const PipelineSchedule& schedule,
                              const PipelineExecution& how, bool gathers) {
  GW_TRY(check_served(schedule, gathers));
  StagePlan plan{.schedule = schedule, .how = how, .evaluation = how, .gathers = gathers};
  GW_ASSIGN(plan.cuts, schedule.layers.empty() ? cut_model(model, schedule.stages())
                                               : cut_model(model, schedule.layers));
  GW_ASSIGN(plan.shared, shared_parameters(model, plan));
  PipelineSchedule whole = gathers ? with_gathers(schedule) : schedule;
  if (!plan.shared.empty()) whole = with_step_ops(whole, {.tied = true, .step = false});
  GW_ASSIGN(plan.schedule, lower_pipeline(whole, how.links));
  plan.forwards = forward_part(plan.schedule);
  return plan;
}

// `schedule`: without transfers.
StagePlan plan_of_rank(const StagePlan& common, const PipelineSchedule& schedule, int rank) {
  StagePlan plan = common;
  plan.rank = rank;
  const std::vector<PipelineOp>& ops = schedule.ranks[static_cast<std::size_t>(rank)];
  std::size_t here = 0;
  for (int number = 0; number < schedule.stages() * schedule.pipes(); ++number) {
    const int stage = number / schedule.pipes();
    const int pipe = number % schedule.pipes();
    const LayerRange& layers = plan.cuts[static_cast<std::size_t>(stage)];
    const std::vector<int>& rank_of = schedule.rank_of[static_cast<std::size_t>(pipe)];
    if (rank_of[static_cast<std::size_t>(stage)] != rank) continue;
    const std::size_t count = layers.end - layers.begin;
    const bool split = std::ranges::any_of(ops, [&](const PipelineOp& op) {
      return op.kind == PipelineOpKind::kBackwardInput && op.stage == stage;
    });
    plan.stages.push_back({.stage = stage,
                           .pipe = pipe,
                           .layers = layers,
                           .here = {here, here + count},
                           .contexts = most_contexts(ops, stage),
                           .split = split});
    here += count;
  }
  plan.at_a_time = std::max(most_unjoined(ops, plan.stages.size(), plan.micro_batches(), 0), 1);
  return plan;
}

}  // namespace

Result<StagePlan> plan_stages(const Model<float>& model, const PipelineSchedule& schedule, int rank,
                              const PipelineExecution& how, bool gathers) {
  GW_ASSIGN(const StagePlan common, common_plan(model, schedule, how, gathers));
  StagePlan plan = plan_of_rank(common, schedule, rank);
  bound_messages(plan, message_room(plan.schedule, rank), message_room(plan.forwards, rank));
  return plan;
}

namespace {

// Room for the messages of a rank in training: what it has in a few steps, from start to drain.
Result<StageRoom> stream_room(const StreamRule& rule, int rank) {
  const int steps = 3 * rule.window() / rule.micro_batches;
  GW_ASSIGN(const PipelineSchedule lowered,
            lower_pipeline(stream_schedule(rule, steps), PipelineLinks::kTagged));
  return message_room(lowered, rank).stages[static_cast<std::size_t>(rank)];
}

}  // namespace

Result<StagePlan> plan_stream(const Model<float>& model, const StreamRule& rule, int rank) {
  const bool delayed = rule.versions == StreamRule::Versions::kDelayed;
  if (delayed && rule.micro_batches < rule.ranks) {
    return Status(Code::kInvalidArgument,
                  format("2bw of %d micro-batches a step (expected at least %d, one for each rank)",
                         rule.micro_batches, rule.ranks));
  }
  if (!delayed && rule.micro_batches != 1) {
    return Status(Code::kInvalidArgument,
                  format("pipedream of %d micro-batches a step (expected 1)", rule.micro_batches));
  }
  PipelineSchedule schedule = one_f_one_b_schedule(rule.ranks, rule.window());
  schedule.layers = rule.layers;
  GW_ASSIGN(StagePlan plan, plan_stages(model, schedule, rank, {}));
  if (!plan.shared.empty()) {
    return Status(Code::kUnsupported, plan.shared.front() +
                                          " on two ranks without a flush (expected ends that are "
                                          "not tied)");
  }
  plan.stream = rule;
  GW_ASSIGN(const StageRoom room, stream_room(rule, rank));
  plan.stages.front().room = larger(plan.stages.front().room, room);
  return plan;
}

Status for_each_stage_plan(const Model<float>& model, const PipelineSchedule& schedule,
                           const PipelineExecution& how, bool gathers,
                           const std::function<Status(const StagePlan& plan)>& visit) {
  GW_ASSIGN(const StagePlan common, common_plan(model, schedule, how, gathers));
  const std::vector<MessageRoom> training = message_rooms(common.schedule);
  const std::vector<MessageRoom> forwards = message_rooms(common.forwards);
  for (int rank = 0; rank < schedule.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    StagePlan plan = plan_of_rank(common, schedule, rank);
    bound_messages(plan, training[at], forwards[at]);
    GW_TRY(visit(plan));
  }
  return {};
}

}  // namespace gradwire
