#include "planner/mesh/mesh_step.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "planner/mesh/mesh_bound.h"
#include "timeline/timeline.h"

namespace gradwire {
namespace {

using Kind = PipelineOpKind;

class MeshLowering {
 public:
  MeshLowering(const MeshChoice& choice, const MeshLinks& links, const MeshCosts& costs,
               const MeshWithout& without, const PipelineSchedule& schedule)
      : choice_(choice),
        links_(links),
        costs_(costs),
        without_(without),
        schedule_(schedule),
        made_(costs.replicas.size() * cells()),
        back_(made_.size()),
        updated_behind_(costs.replicas.size() * static_cast<std::size_t>(choice.pp)) {
    find_holders();
    find_last();
    for (int replica = 0; replica < replicas(); ++replica) {
      for (int rank = 0; rank < choice_.pp; ++rank) add_rank(replica, rank);
    }
    if (costs_.ends_are_tied) add_ties();
    if (choice_.has_flush()) add_updates();
    add_gathers();
    for (int replica = 0; replica < replicas(); ++replica) {
      for (const Read& read : reads_[static_cast<std::size_t>(replica)]) add_read(replica, read);
    }
  }

  Result<MeshStep> run(bool spans) const {
    GW_ASSIGN(const Timeline timeline,
              run_timeline(tasks_, replicas() * choice_.pp * kResourcesOfRank));
    MeshStep step{.ticks = timeline.makespan};
    for (int replica = 0; replica < replicas(); ++replica) {
      for (int rank = 0; rank < choice_.pp; ++rank) {
        step.busy = std::max(step.busy, computed_by(replica, rank));
      }
    }
    for (std::size_t task = 0; spans && task < tasks_.size(); ++task) {
      MeshSpan span = meanings_[task];
      span.begin = timeline.spans[task].begin;
      span.end = timeline.spans[task].end;
      if (span.end > span.begin) step.spans.push_back(span);
    }
    if (spans && choice_.zero == 3 && choice_.pp == 1) add_layer_gathers(step.spans);
    return step;
  }

 private:
  static constexpr int kResourcesOfRank = 4;  // computation, port out, port in, reductions

  // An operation that reads what another rank, or another list, has made.
  struct Read {
    int task = 0;
    PipelineOp op = {};
    int rank = 0;
  };

  int replicas() const { return static_cast<int>(costs_.replicas.size()); }
  std::size_t cells() const {
    return static_cast<std::size_t>(schedule_.pipes()) *
           static_cast<std::size_t>(schedule_.stages()) *
           static_cast<std::size_t>(schedule_.micro_batches);
  }
  std::size_t cell(int replica, int pipe, int stage, int micro) const {
    const auto within = (static_cast<std::size_t>(pipe) * schedule_.stages() + stage) *
                            static_cast<std::size_t>(schedule_.micro_batches) +
                        static_cast<std::size_t>(micro);
    return static_cast<std::size_t>(replica) * cells() + within;
  }
  int resource(int replica, int rank, int what) const {
    return (replica * choice_.pp + rank) * kResourcesOfRank + what;
  }
  const std::vector<MeshStageCost>& stages(int replica, int rank) const {
    return costs_.replicas[static_cast<std::size_t>(replica)][static_cast<std::size_t>(rank)];
  }
  const MeshStageCost& stage(int replica, int rank, const PipelineOp& op) const {
    return *std::ranges::find_if(stages(replica, rank), [&](const MeshStageCost& one) {
      return one.stage == op.stage && one.pipe == op.pipe;
    });
  }

  std::int64_t computed_by(int replica, int rank) const {
    std::int64_t sum = 0;
    std::int64_t updates = 0;
    for (const MeshStageCost& one : stages(replica, rank)) {
      for (const MeshLayerCost& layer : one.layers) {
        sum += layer.forward + layer.again + layer.backward_input + layer.backward_weight;
      }
      updates += one.update;
    }
    return sum * (choice_.accumulate / choice_.pipes()) + updates;
  }

  // Under ZeRO 3 without a pipeline layers take the time of gathers that they wait for: these are
  // no tasks, and are drawn layer by layer from where a micro-batch's way begins.
  void add_layer_gathers(std::vector<MeshSpan>& spans) const {
    std::map<std::pair<int, int>, std::int64_t> back;  // by replica and micro-batch: its beginning
    std::vector<MeshSpan> gathers;
    for (const MeshSpan& span : spans) {
      const bool forward = span.kind == MeshSpan::Kind::kForward;
      if (forward) add_gathers_of(span, span.begin, true, gathers);
      if (span.kind != MeshSpan::Kind::kBackward) continue;
      const auto [place, is_new] = back.try_emplace({span.replica, span.micro}, span.begin);
      place->second = std::min(place->second, span.begin);
    }
    for (const auto& [of, begin] : back) {
      const MeshSpan span{.replica = of.first, .micro = of.second};
      add_gathers_of(span, begin, false, gathers);
    }
    spans.insert(spans.end(), gathers.begin(), gathers.end());
  }

  // Of one way through all layers, which begins at `begin`.
  void add_gathers_of(const MeshSpan& span, std::int64_t begin, bool forward,
                      std::vector<MeshSpan>& gathers) const {
    const std::vector<MeshLayerCost>& layers = stages(span.replica, 0).front().layers;
    const auto at = [&](std::size_t turn) {
      return forward ? layers[turn] : layers[layers.size() - 1 - turn];
    };
    MeshSpan gather{.kind = MeshSpan::Kind::kGather, .replica = span.replica, .micro = span.micro};
    const auto draw = [&](const MeshExchange& exchange, std::int64_t from) {
      gather.begin = from;
      gather.end = from + exchange.whole();
      if (exchange.any()) gathers.push_back(gather);
    };
    draw(at(0).gather, begin);
    std::int64_t now = begin;
    for (std::size_t turn = 0; turn < layers.size(); ++turn) {
      const MeshLayerCost layer = at(turn);
      const std::int64_t waited = turn == 0 ? layer.gather.whole() : 0;
      if (turn + 1 < layers.size()) draw(at(turn + 1).gather, now + waited);
      now += forward ? forward_of(layer) : back_of(layer, Kind::kBackward);
    }
  }

  int add(TimelineTask task, const MeshSpan& meaning) {
    task.order = static_cast<std::int64_t>(tasks_.size());
    tasks_.push_back(std::move(task));
    meanings_.push_back(meaning);
    return static_cast<int>(tasks_.size()) - 1;
  }

  void find_holders() {
    holders_.resize(static_cast<std::size_t>(schedule_.stages()));
    for (const auto& rank_of : schedule_.rank_of) {
      for (std::size_t stage = 0; stage < rank_of.size(); ++stage) {
        holders_[stage].push_back(rank_of[stage]);
      }
    }
  }

  // The operations behind which a stage's gradients are whole.
  void find_last() {
    for (int rank = 0; rank < choice_.pp; ++rank) {
      const auto& ops = schedule_.ranks[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (gives_weight_gradient(ops[i].kind)) last_[{rank, ops[i].pipe, ops[i].stage}] = i;
      }
    }
  }

  std::int64_t forward_of(const MeshStageCost& one) const {
    std::int64_t sum = 0;
    for (const MeshLayerCost& layer : one.layers) sum += forward_of(layer);
    return sum;
  }
  std::int64_t forward_of(const MeshLayerCost& layer) const {
    return layer.forward + (without_.sums ? 0 : layer.sum_forward) +
           (without_.data ? 0 : layer.wait_forward);
  }
  std::int64_t input_of(const MeshLayerCost& layer) const {
    return layer.again + layer.backward_input + (without_.sums ? 0 : layer.sum_backward) +
           (without_.data ? 0 : layer.wait_backward);
  }
  std::int64_t back_of(const MeshLayerCost& layer, Kind kind) const {
    return (kind == Kind::kBackwardWeight ? 0 : input_of(layer)) +
           (kind == Kind::kBackwardInput ? 0 : layer.backward_weight);
  }

  static MeshSpan::Kind meaning_of(Kind kind) {
    if (kind == Kind::kForward) return MeshSpan::Kind::kForward;
    if (kind == Kind::kBackwardInput) return MeshSpan::Kind::kInput;
    return kind == Kind::kBackwardWeight ? MeshSpan::Kind::kWeight : MeshSpan::Kind::kBackward;
  }

  void add_rank(int replica, int rank) {
    reads_.resize(static_cast<std::size_t>(replicas()));
    const auto& ops = schedule_.ranks[static_cast<std::size_t>(rank)];
    std::vector<int> before;  // tasks that the next operation is behind
    std::map<int, int> updates;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const PipelineOp& op = ops[i];
      if (op.kind == Kind::kOptimizerStep) {
        before.push_back(reduction(replica, rank, op, updates[op.stage]++));
        before = {add_update(replica, rank, op.stage, behind_of(stage(replica, rank, op)), before)};
        continue;
      }
      if (!is_compute(op.kind)) continue;  // copies of weights take no time
      if (choice_.zero == 3 && choice_.pp > 1) unshard(replica, rank, op, before);
      const int first = static_cast<int>(tasks_.size());
      const bool last = gives_weight_gradient(op.kind) && choice_.has_flush() &&
                        last_.at({rank, op.pipe, op.stage}) == i;
      before = {last ? add_layers(replica, rank, op, before) : add_op(replica, rank, op, before)};
      if (op.kind != Kind::kBackwardWeight) {
        auto& cells = op.kind == Kind::kForward ? made_ : back_;
        cells[cell(replica, op.pipe, op.stage, op.micro)] = {before.front(), rank};
        reads_[static_cast<std::size_t>(replica)].push_back({first, op, rank});
      }
      if (!choice_.has_flush() && gives_weight_gradient(op.kind)) {
        last_backward_[{replica, rank, op.stage}] = before.front();
      }
    }
  }

  int add_op(int replica, int rank, const PipelineOp& op, const std::vector<int>& before) {
    const MeshStageCost& one = stage(replica, rank, op);
    std::int64_t ticks = op.kind == Kind::kForward ? forward_of(one) : 0;
    for (const MeshLayerCost& layer : one.layers) {
      if (op.kind != Kind::kForward) ticks += back_of(layer, op.kind);
    }
    return add({.ticks = ticks, .resources = {resource(replica, rank, 0)}, .after = before},
               {meaning_of(op.kind), replica, rank, op.stage, op.micro});
  }

  // Layer by layer, from the last one on: each lets its reduction begin. The first layer's task.
  int add_layers(int replica, int rank, const PipelineOp& op, std::vector<int> before) {
    const MeshStageCost& one = stage(replica, rank, op);
    for (std::size_t i = one.layers.size(); i-- > 0;) {
      const std::int64_t sums = without_.sums ? 0 : one.layers[i].sum_gradients;
      const int task = add({.ticks = back_of(one.layers[i], op.kind) + sums,
                            .resources = {resource(replica, rank, 0)},
                            .after = before},
                           {meaning_of(op.kind), replica, rank, op.stage, op.micro});
      before = {task};
      ends_[{replica, op.stage, i}] = task;
      updated_behind(replica, rank).push_back(task);
      if (without_.data || !one.layers[i].reduce.any()) continue;
      join(replica, rank, op.stage, i, one.layers[i].reduce, task);
    }
    return before.front();
  }

  std::vector<int>& updated_behind(int replica, int rank) {
    return updated_behind_[static_cast<std::size_t>(replica * choice_.pp + rank)];
  }

  int add_code(int replica, int rank, int stage, std::int64_t ticks, std::vector<int> behind) {
    return add(
        {.ticks = ticks, .resources = {resource(replica, rank, 0)}, .after = std::move(behind)},
        {MeshSpan::Kind::kCode, replica, rank, stage});
  }

  // A rank's part of a reduction that begins behind `task`: what its processor does for it.
  void join(int replica, int rank, int stage, std::size_t layer, const MeshExchange& exchange,
            int task) {
    const int begins =
        exchange.before > 0 ? add_code(replica, rank, stage, exchange.before, {task}) : task;
    const int reduction = reduction_of_layer(stage, layer, exchange);
    after(reduction, begins);
    std::vector<int> ends{reduction};
    if (exchange.beside > 0) {
      ends.push_back(add_code(replica, rank, stage, exchange.beside, {begins}));
    }
    if (exchange.behind > 0) ends = {add_code(replica, rank, stage, exchange.behind, ends)};
    for (const int end : ends) updated_behind(replica, rank).push_back(end);
  }

  void after(int task, int other) { tasks_[static_cast<std::size_t>(task)].after.push_back(other); }

  // All queues that a stage's reductions take at the same time.
  std::vector<int> queues(int stage) const {
    std::vector<int> all;
    for (int replica = 0; replica < replicas(); ++replica) {
      for (const int rank : holders_[static_cast<std::size_t>(stage)]) {
        const int queue = resource(replica, rank, 3);
        if (std::ranges::find(all, queue) == all.end()) all.push_back(queue);
      }
    }
    return all;
  }

  int reduction_of_layer(int stage, std::size_t layer, const MeshExchange& exchange) {
    const auto known = reductions_.find({stage, layer});
    if (known != reductions_.end()) return known->second;
    const int task =
        add({.ticks = exchange.ticks, .latency = exchange.latency, .resources = queues(stage)},
            {MeshSpan::Kind::kReduce, 0, holders_[static_cast<std::size_t>(stage)].front(), stage});
    reductions_[{stage, layer}] = task;
    return task;
  }

  // Of all of a stage's gradients, at an update of a step without a flush.
  int reduction(int replica, int rank, const PipelineOp& op, int step) {
    const MeshStageCost& one = stage(replica, rank, op);
    int& task = updates_.try_emplace({op.stage, step}, -1).first->second;
    if (task < 0) {
      MeshExchange all;
      for (const MeshLayerCost& layer : one.layers) {
        all.ticks += layer.reduce.ticks + (choice_.zero > 0 ? layer.gather.ticks : 0);
        all.latency = std::max(all.latency, layer.reduce.latency);
      }
      if (without_.data) all = {};
      task = add({.ticks = all.ticks, .latency = all.latency, .resources = queues(op.stage)},
                 {MeshSpan::Kind::kReduce, replica, rank, op.stage});
    }
    after(task, last_backward_.at({replica, rank, op.stage}));
    return task;
  }

  // The processor's part of a stage's reductions, at an update of a step without a flush.
  std::int64_t behind_of(const MeshStageCost& one) const {
    std::int64_t ticks = one.update;
    for (const MeshLayerCost& layer : one.layers) {
      const MeshExchange& reduce = layer.reduce;
      if (!without_.data) ticks += reduce.before + reduce.beside + reduce.behind;
    }
    return ticks;
  }

  int add_update(int replica, int rank, int stage, std::int64_t ticks, std::vector<int> behind) {
    return add(
        {.ticks = ticks, .resources = {resource(replica, rank, 0)}, .after = std::move(behind)},
        {MeshSpan::Kind::kUpdate, replica, rank, stage});
  }

  // One step of a rank's optimizer, for all its stages.
  void add_updates() {
    updates_of_.resize(updated_behind_.size(), -1);
    for (int replica = 0; replica < replicas(); ++replica) {
      for (int rank = 0; rank < choice_.pp; ++rank) {
        std::int64_t ticks = 0;
        for (const MeshStageCost& one : stages(replica, rank)) ticks += one.update;
        if (ticks == 0) continue;
        updates_of_[static_cast<std::size_t>(replica * choice_.pp + rank)] =
            add_update(replica, rank, stages(replica, rank).front().stage, ticks,
                       updated_behind(replica, rank));
      }
    }
  }

  MeshExchange gathered(const MeshStageCost& one) const {
    MeshExchange all;
    for (const MeshLayerCost& layer : one.layers) {
      all.ticks += layer.gather.ticks;
      all.beside += layer.gather.beside;
      all.latency = std::max(all.latency, layer.gather.latency);
    }
    all.ticks = std::max(all.ticks, all.beside);
    return all;
  }

  void unshard(int replica, int rank, const PipelineOp& op, std::vector<int>& before) {
    if (without_.data || !unsharded_.insert({replica, rank, op.stage}).second) return;
    const MeshExchange all = gathered(stage(replica, rank, op));
    before = {add({.ticks = all.ticks,
                   .latency = all.latency,
                   .resources = {resource(replica, rank, 3)},
                   .after = before},
                  {MeshSpan::Kind::kGather, replica, rank, op.stage})};
  }

  // Gradients of what both ends have are added up before replicas average them.
  void add_ties() {
    const int end = schedule_.stages() - 1;
    const int last = schedule_.rank_of.front()[static_cast<std::size_t>(end)];
    for (int replica = 0; replica < replicas() && !without_.data; ++replica) {
      const std::size_t head = stages(replica, last).back().layers.size() - 1;
      const MeshExchange& exchange = costs_.tied[static_cast<std::size_t>(replica)];
      const int task = add({.ticks = exchange.ticks,
                            .latency = exchange.latency,
                            .resources = {resource(replica, 0, 3), resource(replica, last, 3)},
                            .after = {ends_.at({replica, 0, 0}), ends_.at({replica, end, head})}},
                           {MeshSpan::Kind::kReduce, replica, 0, 0});
      for (const auto& [stage, layer] : {std::pair(0, std::size_t{0}), std::pair(end, head)}) {
        wait_for_ties(stage, layer, task);
      }
      updated_behind(replica, 0).push_back(task);
      updated_behind(replica, last).push_back(task);
    }
  }

  // The bucket that has a layer's gradients is whole with that layer, or one before it.
  void wait_for_ties(int stage, std::size_t layer, int task) {
    for (std::size_t i = layer + 1; i-- > 0;) {
      const auto known = reductions_.find({stage, i});
      if (known == reductions_.end()) continue;
      after(known->second, task);
      return;
    }
  }

  // Updated parameters come together behind the updates.
  void add_gathers() {
    if ((choice_.zero != 1 && choice_.zero != 2) || without_.data || !choice_.has_flush()) return;
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      const int rank = holders_[static_cast<std::size_t>(stage)].front();
      const auto& held = stages(0, rank);
      const auto one = std::ranges::find(held, stage, &MeshStageCost::stage);
      const MeshExchange all = gathered(*one);
      const int task = add({.ticks = all.ticks, .latency = all.latency, .resources = queues(stage)},
                           {MeshSpan::Kind::kGather, 0, rank, stage});
      for (std::size_t layer = 0; layer < one->layers.size(); ++layer) {
        const auto known = reductions_.find({stage, layer});
        if (known != reductions_.end()) after(task, known->second);
      }
      for (int replica = 0; replica < replicas(); ++replica) {
        for (const int holder : holders_[static_cast<std::size_t>(stage)]) {
          const int update = updates_of_[static_cast<std::size_t>(replica * choice_.pp + holder)];
          if (update >= 0) after(task, update);
        }
      }
    }
  }

  void add_read(int replica, const Read& read) {
    const PipelineOp& op = read.op;
    const bool forward = op.kind == Kind::kForward;
    const int from_stage = op.stage + (forward ? -1 : 1);
    if (from_stage < 0 || from_stage >= schedule_.stages()) return;
    const auto& [task, rank] =
        (forward ? made_ : back_)[cell(replica, op.pipe, from_stage, op.micro)];
    if (rank == read.rank) {
      after(read.task, task);
      return;
    }
    PipelineOp sent = op;
    sent.stage = static_cast<std::uint16_t>(from_stage);
    const MeshStageCost& maker = stage(replica, rank, sent);
    const double bytes = forward ? maker.output_bytes : maker.input_bytes;
    MeshLink link = links_.replicas[static_cast<std::size_t>(replica)].hops.at({rank, read.rank});
    if (without_.messages) link = {};
    // Sending is half of what a byte each way takes, receiving the other half.
    const std::int64_t processor = ticks_of(bytes * link.processor / 2);
    constexpr double kNanoseconds = 1e9;
    const std::int64_t send =
        link.times == nullptr ? 0 : ticks_of(kNanoseconds * link.times->send());
    const int message =
        add({.ticks = ticks_of(bytes * link.byte),
             .latency = link.latency,
             .resources = {resource(replica, rank, 1), resource(replica, read.rank, 2)},
             .after = {task}},
            {MeshSpan::Kind::kMessage, replica, rank, from_stage, op.micro});
    if (processor + send > 0) add_code(replica, rank, from_stage, processor + send, {task});
    if (processor == 0) {
      after(read.task, message);
      return;
    }
    after(read.task, add_code(replica, read.rank, op.stage, processor, {message}));
  }

  static std::int64_t ticks_of(double ticks) {
    constexpr double kMost = 0x1p50;
    return static_cast<std::int64_t>(std::ceil(std::min(ticks, kMost)));
  }

  const MeshChoice& choice_;
  const MeshLinks& links_;
  const MeshCosts& costs_;
  const MeshWithout& without_;
  const PipelineSchedule& schedule_;
  std::vector<TimelineTask> tasks_;
  std::vector<MeshSpan> meanings_;                         // by task
  std::vector<std::vector<int>> holders_;                  // by stage: ranks
  std::map<std::tuple<int, int, int>, std::size_t> last_;  // by rank, pipe, stage
  // By cell: the task behind which it is there, and its rank.
  std::vector<std::pair<int, int>> made_;
  std::vector<std::pair<int, int>> back_;
  std::vector<std::vector<Read>> reads_;                    // by replica
  std::map<std::tuple<int, int, std::size_t>, int> ends_;   // by replica, stage, layer
  std::map<std::pair<int, std::size_t>, int> reductions_;   // by stage, layer
  std::map<std::pair<int, int>, int> updates_;              // by stage, step
  std::map<std::tuple<int, int, int>, int> last_backward_;  // by replica, rank, stage
  std::set<std::tuple<int, int, int>> unsharded_;           // likewise
  // By replica and rank: what its optimizer's step is behind, and that step (-1: it takes no time).
  std::vector<std::vector<int>> updated_behind_;
  std::vector<int> updates_of_;
};

Result<PipelineSchedule> schedule_of(const MeshChoice& choice, int steps) {
  if (choice.pp == 1) {
    return generate_pipeline({.kind = PipelineKind::kOneFOneB}, 1, choice.accumulate);
  }
  return generate_pipeline(choice.order, choice.pp, choice.accumulate, steps);
}

Result<MeshStep> simulate_steps(const MeshChoice& choice, const MeshLinks& links,
                                const MeshCosts& costs, const MeshWithout& without, bool spans,
                                int steps) {
  GW_ASSIGN(const PipelineSchedule schedule, schedule_of(choice, steps));
  return MeshLowering(choice, links, costs, without, schedule).run(spans);
}

}  // namespace

Result<MeshStep> simulate_mesh(const MeshChoice& choice, const MeshLinks& links,
                               const MeshCosts& costs, const MeshWithout& without, bool spans) {
  if (choice.has_flush()) return simulate_steps(choice, links, costs, without, spans, 1);
  // A run's start and end are left out: what more steps add to a run that has filled its pipeline.
  const int filled = 2 * std::max(choice.pp / choice.accumulate, 1) + 1;
  GW_ASSIGN(const MeshStep one, simulate_steps(choice, links, costs, without, false, filled));
  GW_ASSIGN(MeshStep more, simulate_steps(choice, links, costs, without, spans, 2 * filled));
  // Both ends of a run differ a little: no rank does a step in less than its own work takes.
  const std::int64_t least = without.data ? more.busy : mesh_bound(choice, costs);
  more.ticks = std::max((more.ticks - one.ticks) / filled, least);
  return more;
}

}  // namespace gradwire
