#include "planner/mesh/mesh_search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "planner/mesh/known_links.h"
#include "planner/mesh/mesh_bound.h"
#include "planner/mesh/roomy_stages.h"

namespace gradwire {
namespace {

using Codecs = std::map<std::string, MeshCompression>;

double momentum_of(const MeshProblem& problem) {
  return problem.optimizer == "sgd" || problem.optimizer == "nesterov" ? problem.momentum : 0;
}

Result<Codecs> codecs_of(const MeshProblem& problem) {
  Codecs codecs;
  for (const std::string& one : problem.compressors) {
    GW_ASSIGN(MeshCompression made, MeshCompression::make(one, momentum_of(problem)));
    codecs.emplace(one, std::move(made));
  }
  return codecs;
}

// A choice, and what is known of it before it is simulated.
struct Bounded {
  std::int64_t bound = 0;
  std::size_t number = 0;
};

// One that surely does not fit: at least so many bytes too many on some rank.
struct Lacking {
  std::int64_t bytes = 0;
  std::size_t number = 0;
};

constexpr const char* kSurelyTooLarge =
    "do not fit: parameters, gradients and the optimizer's alone are more than the devices' memory";
constexpr const char* kTooLarge =
    "do not fit into the devices' memory, of those that may be faster than the rows shown";

constexpr const char* kBeyondBound = "no faster than the rows shown, by a lower bound";
constexpr const char* kNoReason =
    "no faster and no smaller than a row with another ZeRO stage, recompute or layers of stages "
    "alone";

void set_memory(const MeshProblem& problem, const MeshLinks& links, MeshAnswer& answer) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t rank = 0; rank < answer.memory.size(); ++rank) {
    const std::int64_t room = problem.device_mem > 0 ? problem.device_mem : links.memory[rank];
    const std::int64_t left = room - answer.memory[rank].most();
    if (left >= least) continue;
    least = left;
    answer.fullest = static_cast<int>(rank);
    answer.room = room;
  }
}

MeshBytes bytes_of(const MeshChoice& choice, const MeshCosts& costs) {
  MeshBytes most;
  for (std::size_t replica = 0; replica < costs.replicas.size(); ++replica) {
    const auto& ranks = costs.replicas[replica];
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      MeshBytes bytes;
      for (const MeshStageCost& stage : ranks[rank]) {
        const double micro_batches = choice.accumulate / choice.pipes();
        bytes.messages += micro_batches * ((stage.sends_output ? stage.output_bytes : 0) +
                                           (stage.sends_input ? stage.input_bytes : 0));
        bytes.tensors += micro_batches * stage.sum_bytes + stage.sum_step_bytes;
        for (const MeshLayerCost& layer : stage.layers) bytes.data += layer.reduce.sent;
      }
      // Both ends of the pipeline add up what they share.
      if (rank == 0 || rank + 1 == ranks.size()) bytes.data += costs.tied[replica].sent;
      most.data = std::max(most.data, bytes.data + costs.gathered_bytes);
      most.messages = std::max(most.messages, bytes.messages);
      most.tensors = std::max(most.tensors, bytes.tensors);
    }
  }
  return most;
}

Result<MeshPhases> phases_of(const MeshChoice& choice, const MeshLinks& links,
                             const MeshCosts& costs, std::int64_t whole) {
  MeshPhases phases;
  GW_ASSIGN(const MeshStep data, simulate_mesh(choice, links, costs, {.data = true}));
  GW_ASSIGN(const MeshStep messages,
            simulate_mesh(choice, links, costs, {.data = true, .messages = true}));
  GW_ASSIGN(const MeshStep sums,
            simulate_mesh(choice, links, costs, {.data = true, .messages = true, .sums = true}));
  // A schedule of less may take longer (Graham's anomalies): then the class costs nothing.
  const std::int64_t without_data = std::min(data.ticks, whole);
  const std::int64_t without_messages = std::min(messages.ticks, without_data);
  const std::int64_t without_sums = std::min(sums.ticks, without_messages);
  phases.data = whole - without_data;
  phases.messages = without_data - without_messages;
  phases.tensors = without_messages - without_sums;
  phases.compute = std::min(sums.busy, without_sums);
  phases.bubble = without_sums - phases.compute;
  return phases;
}

class MeshSearch {
 public:
  MeshSearch(const MeshProblem& problem, const MeshSearchOptions& options, MeshChoices choices,
             Codecs codecs)
      : problem_(problem),
        options_(options),
        choices_(std::move(choices.all)),
        codecs_(std::move(codecs)),
        memory_(problem),
        recut_memory_(problem),
        links_(*problem.cluster) {
    result_.left_out = std::move(choices.left_out);
    result_.choices = static_cast<std::int64_t>(choices_.size());
  }

  Result<MeshSearchResult> run() {
    GW_TRY(bound_all());
    for (std::size_t i = 0; i < bounded_.size(); ++i) {
      if (bounded_[i].bound > worst()) {
        result_.left_out[kBeyondBound] += static_cast<std::int64_t>(bounded_.size() - i);
        break;
      }
      GW_TRY(try_one(bounded_[i]));
      tell_tried(i + 1);
    }
    told_ = whole();
    tell_tried(bounded_.size());
    if (result_.rows.empty()) return nothing();
    const auto rows = static_cast<std::size_t>(options_.rows);
    if (result_.rows.size() > rows) {
      result_.left_out["slower than the rows shown, simulated"] +=
          static_cast<std::int64_t>(result_.rows.size() - rows);
      result_.rows.resize(rows);
    }
    for (MeshAnswer& row : result_.rows) {
      if (!options_.phases) break;
      GW_ASSIGN(const MeshCosts costs, costs_of(row.choice));
      GW_ASSIGN(row.phases, phases_of(row.choice, links_.of(row.choice), costs, row.ticks));
      row.bytes = bytes_of(row.choice, costs);
    }
    return std::move(result_);
  }

 private:
  // What is left is what the bound does not leave out, by the rows so far; each counts as much as a
  // simulation of it takes.
  void tell_tried(std::size_t done) {
    if (!options_.progress) return;
    const auto left_out = std::ranges::upper_bound(bounded_, worst(), {}, &Bounded::bound);
    const auto to_try = static_cast<std::size_t>(left_out - bounded_.begin());
    const double all = work_before_[std::max(to_try, done)];
    const auto choices = static_cast<double>(choices_.size());
    // A row that gives way to another one may let the worst be slower than it was.
    if (all > 0) {
      told_ = std::max(told_, static_cast<std::int64_t>(work_before_[done] / all * choices));
    }
    tell({MeshSearchPart::kTried, told_, whole(),
          result_.rows.empty() ? "none fits yet" : brief_text(result_.rows.front().choice)});
  }

  void tell(const MeshSearchProgress& at) const {
    if (options_.progress) options_.progress(at);
  }
  // Of those that are listed: what is cut by memory counts with what it was cut of.
  std::int64_t whole() const {
    return std::max<std::int64_t>(static_cast<std::int64_t>(choices_.size()), 1);
  }

  Status nothing() {
    look_for_smallest();
    const std::string why = reasons_text(result_.left_out);
    if (!smallest_) {
      return {Code::kInvalidArgument,
              format("no mesh of %d devices is served (%s; expected devices, or a part of them, "
                     "whose number divides into replicas that divide the batch, ranks that divide "
                     "tensors, and stages)",
                     problem_.cluster->devices(), why.c_str())};
    }
    return {Code::kInvalidArgument,
            format("no mesh fits (%s; the smallest of those looked at, %s, needs %lld bytes on "
                   "rank %d of its pipeline, whose device has %lld)",
                   why.c_str(), brief_text(smallest_->choice).c_str(),
                   static_cast<long long>(smallest_->most_needed()), smallest_->fullest,
                   static_cast<long long>(smallest_->room))};
  }

  Result<MeshCosts> costs_of(const MeshChoice& choice) {
    return mesh_costs(problem_, choice, links_.of(choice), codecs_.at(choice.compressor));
  }

  // At least so many bytes are too many on the rank of a choice that lacks most; <= 0: it may fit.
  Result<std::int64_t> lacks(const MeshChoice& choice) {
    GW_ASSIGN(const std::int64_t least, memory_.least(choice));
    std::int64_t room = problem_.device_mem * choice.pp;
    if (problem_.device_mem == 0) {
      const std::vector<std::int64_t>& memory = links_.of(choice).memory;
      room = std::accumulate(memory.begin(), memory.end(), std::int64_t{0});
    }
    return (least - room + choice.pp - 1) / choice.pp;
  }

  // Of those that surely do not fit, which no stages were planned for: until no other can lack
  // less, or enough of them were looked at. Of one division of the ranks the smallest micro-batches
  // with most that is computed again hold least.
  void look_for_smallest() {
    constexpr std::size_t kMost = 64;
    std::ranges::stable_sort(lacking_, {}, [this](const Lacking& one) {
      const MeshChoice& choice = choices_[one.number];
      return std::tuple(one.bytes, choice.micro_batch, choice.recompute != "full");
    });
    std::set<std::string> divisions;
    for (const Lacking& one : lacking_) {
      if (smallest_ && one.bytes >= beyond(*smallest_)) break;
      MeshAnswer answer{.choice = choices_[one.number]};
      if (!divisions.insert(parallel_text(answer.choice)).second) continue;
      if (divisions.size() > kMost) break;
      auto memory = memory_.of(answer.choice, codecs_.at(answer.choice.compressor));
      if (!memory.has_value()) continue;
      answer.memory = std::move(memory.value());
      set_memory(problem_, links_.of(answer.choice), answer);
      note_smallest(std::move(answer));
    }
  }

  Status bound_all() {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const MeshChoice& choice = choices_[i];
      if (!choice.order.layers.empty()) cut_.insert(to_string(choice));
      tell({MeshSearchPart::kBounded, static_cast<std::int64_t>(i) + 1, whole()});
      GW_ASSIGN(const std::int64_t bytes, lacks(choice));
      if (bytes > 0) {
        lacking_.push_back({bytes, i});
        ++result_.left_out[kSurelyTooLarge];
        continue;
      }
      GW_ASSIGN(const MeshCosts costs, mesh_costs(problem_, choice, links_.slowest_of(choice),
                                                  codecs_.at(choice.compressor)));
      bounded_.push_back({mesh_bound(choice, costs), i});
    }
    std::ranges::stable_sort(bounded_, {}, &Bounded::bound);
    for (const Bounded& one : bounded_) {
      const MeshChoice& choice = choices_[one.number];
      work_before_.push_back(work_before_.back() +
                             static_cast<double>(choice.accumulate) * choice.stages());
    }
    return {};
  }

  std::int64_t worst() const {
    const auto rows = static_cast<std::size_t>(options_.rows);
    return result_.rows.size() < rows ? std::numeric_limits<std::int64_t>::max()
                                      : result_.rows[rows - 1].ticks;
  }

  Status try_one(const Bounded& bounded) {
    MeshAnswer answer{.choice = choices_[bounded.number], .bound = bounded.bound};
    auto memory = memory_.of(answer.choice, codecs_.at(answer.choice.compressor));
    if (!memory.has_value()) {
      ++result_.left_out["stages that are not served: " + std::string(memory.error().message())];
      return {};
    }
    answer.memory = std::move(memory.value());
    const MeshLinks& links = links_.of(answer.choice);
    set_memory(problem_, links, answer);
    if (!fits(answer)) {
      ++result_.left_out[kTooLarge];
      GW_TRY(try_roomier(answer));
      note_smallest(std::move(answer));
      return {};
    }
    GW_ASSIGN(const MeshCosts costs, costs_of(answer.choice));
    GW_ASSIGN(const MeshStep step, simulate_mesh(answer.choice, links, costs));
    ++result_.simulated;
    answer.ticks = step.ticks;
    add_row(std::move(answer));
    return {};
  }

  // The same with other stages, where that fits. What does not fit says more of how much its ranks
  // would hold otherwise: the next round's divisions are by that.
  Status try_roomier(const MeshAnswer& large) {
    constexpr int kRounds = 4;
    const MeshChoice& choice = large.choice;
    // Of backwards in two halves runs compute nothing again.
    const bool again = splits_backward(choice.order.kind) && choice.recompute != "none";
    if (!problem_.cuts_stages || choice.pp == 1 || again) return {};
    GW_TRY(learn_own_stages(choice));
    std::vector<std::int64_t> rooms = links_.of(choice).memory;
    if (problem_.device_mem > 0) std::ranges::fill(rooms, problem_.device_mem);
    MeshAnswer last = large;
    for (int round = 0; round < kRounds; ++round) {
      GW_ASSIGN(const auto divisions, roomy_stages(problem_, last.choice, last.memory, rooms));
      for (const std::vector<int>& layers : divisions) {
        MeshAnswer answer{.choice = choice};
        answer.choice.order.layers = layers;
        // Other starts may lead to the same, and so may runs' own stages.
        if (!cut_.insert(to_string(answer.choice)).second) return {};
        auto memory = recut_memory_.of(answer.choice, codecs_.at(choice.compressor));
        if (!memory.has_value()) return {};  // stages that are not served
        answer.memory = std::move(memory.value());
        set_memory(problem_, links_.of(choice), answer);
        if (fits(answer)) return try_recut(std::move(answer));
        last = answer;
        note_smallest(std::move(answer));
      }
      if (divisions.empty()) return {};
    }
    return {};
  }

  // A choice that fits, beyond those that were listed.
  Status try_recut(MeshAnswer answer) {
    ++result_.choices;
    GW_ASSIGN(const MeshCosts costs, costs_of(answer.choice));
    answer.bound = mesh_bound(answer.choice, costs);
    if (answer.bound > worst()) {
      ++result_.left_out[kBeyondBound];
      return {};
    }
    GW_ASSIGN(const MeshStep step, simulate_mesh(answer.choice, links_.of(answer.choice), costs));
    ++result_.simulated;
    answer.ticks = step.ticks;
    add_row(std::move(answer));
    return {};
  }

  // Said as they are, runs' own stages are no other ones.
  Status learn_own_stages(const MeshChoice& choice) {
    MeshChoice said = choice;
    GW_ASSIGN(const std::vector<LayerRange> own,
              problem_.model->cuts(choice.stages(), choice.has_flush()));
    said.order.layers.clear();
    for (const LayerRange& cut : own) {
      said.order.layers.push_back(static_cast<int>(cut.end - cut.begin));
    }
    cut_.insert(to_string(said));
    return {};
  }

  // Rows beyond those that are wanted stay: one of these may yet give way to a better one.
  void add_row(MeshAnswer answer) {
    const auto before = [](const MeshAnswer& a, const MeshAnswer& b) {
      return std::tuple(a.ticks, a.most_memory()) < std::tuple(b.ticks, b.most_memory());
    };
    auto& rows = result_.rows;
    std::int64_t& worse = result_.left_out[kNoReason];
    const bool is_worse =
        std::ranges::any_of(rows, [&](const MeshAnswer& row) { return outdoes(row, answer); });
    if (is_worse) {
      ++worse;
      return;
    }
    worse += static_cast<std::int64_t>(
        std::erase_if(rows, [&](const MeshAnswer& row) { return outdoes(answer, row); }));
    if (worse == 0) result_.left_out.erase(kNoReason);
    rows.insert(std::ranges::upper_bound(rows, answer, before), std::move(answer));
  }

  void note_smallest(MeshAnswer answer) {
    if (!smallest_ || beyond(answer) < beyond(*smallest_)) smallest_ = std::move(answer);
  }

  static std::int64_t beyond(const MeshAnswer& answer) {
    return answer.most_needed() - answer.room;
  }

  // Whether nothing speaks for `other` beside `row`: but for ZeRO stage, recompute, and layers of
  // stages where both say them, it is the same mesh, no faster, and leaves no more room.
  static bool outdoes(const MeshAnswer& row, const MeshAnswer& other) {
    if (row.ticks > other.ticks || beyond(row) > beyond(other)) return false;
    // Numbers first: this is asked of every pair of rows.
    const auto numbers = [](const MeshChoice& one) {
      return std::tuple(one.dp, one.tp, one.pp, one.accumulate, one.micro_batch);
    };
    const MeshChoice& a = row.choice;
    const MeshChoice& b = other.choice;
    if (numbers(a) != numbers(b) || a.layout != b.layout || a.compressor != b.compressor) {
      return false;
    }
    PipelineSpec order = b.order;
    if (!order.layers.empty() && !a.order.layers.empty()) order.layers = a.order.layers;
    return a.order == order;
  }

  const MeshProblem& problem_;
  const MeshSearchOptions& options_;
  std::vector<MeshChoice> choices_;
  Codecs codecs_;
  MeshMemory memory_;
  MeshMemory recut_memory_;  // one would forget the stages that the next choice has, too
  MeshSearchResult result_;
  std::vector<Bounded> bounded_;
  std::vector<double> work_before_{0};  // operations of all before the i-th of `bounded_`
  std::int64_t told_ = 0;               // of kTried
  std::vector<Lacking> lacking_;
  std::set<std::string> cut_;           // those that say the layers of their stages, listed or not
  std::optional<MeshAnswer> smallest_;  // of those that do not fit: it lacks least
  KnownLinks links_;
};

}  // namespace

std::string reasons_text(const std::map<std::string, std::int64_t>& left_out) {
  std::string text;
  for (const auto& [reason, count] : left_out) {
    text += format("%s%lld: %s", text.empty() ? "" : "; ", static_cast<long long>(count),
                   reason.c_str());
  }
  return text;
}

bool fits(const MeshAnswer& answer) { return answer.most_needed() <= answer.room; }

Result<MeshSearchResult> search_mesh(const MeshProblem& problem, const MeshSearchOptions& options) {
  GW_ASSIGN(Codecs codecs, codecs_of(problem));
  MeshChoices choices{.all = options.among};
  if (choices.all.empty()) {
    GW_ASSIGN(choices, mesh_choices(problem, options.progress));
  }
  return MeshSearch(problem, options, std::move(choices), std::move(codecs)).run();
}

Result<MeshAnswer> answer_mesh(const MeshProblem& problem, const MeshChoice& choice) {
  GW_ASSIGN(const MeshCompression codec,
            MeshCompression::make(choice.compressor, momentum_of(problem)));
  const MeshLinks links = mesh_links(*problem.cluster, choice);
  MeshAnswer answer{.choice = choice};
  MeshMemory memory(problem);
  GW_ASSIGN(answer.memory, memory.of(choice, codec));
  set_memory(problem, links, answer);
  GW_ASSIGN(const MeshCosts costs, mesh_costs(problem, choice, links, codec));
  answer.bound = mesh_bound(choice, costs);
  GW_ASSIGN(const MeshStep step, simulate_mesh(choice, links, costs));
  answer.ticks = step.ticks;
  GW_ASSIGN(answer.phases, phases_of(choice, links, costs, answer.ticks));
  answer.bytes = bytes_of(choice, costs);
  return answer;
}

Result<MeshStep> trace_mesh(const MeshProblem& problem, const MeshChoice& choice) {
  GW_ASSIGN(const MeshCompression codec,
            MeshCompression::make(choice.compressor, momentum_of(problem)));
  const MeshLinks links = mesh_links(*problem.cluster, choice);
  GW_ASSIGN(const MeshCosts costs, mesh_costs(problem, choice, links, codec));
  return simulate_mesh(choice, links, costs, {}, true);
}

}  // namespace gradwire
