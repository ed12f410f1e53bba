#include <algorithm>
#include <limits>

#include "base/text.h"
#include "planner/search/pareto.h"
#include "planner/search/partitioners.h"

namespace gradwire {
namespace {

// Far below any time, and far from overflow.
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min() / 4;

// What a step is made of: a stage that computes, or a transfer between two.
struct Element {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t reduce = 0;
};

Element element_of(const StageCost& cost, const PlacedStage& stage) {
  return {cost.forward(stage), cost.backward(stage), cost.reduce(stage)};
}

// What matters of a suffix to whatever stands in front, with Q over its elements:
//   [0] the most of sum F + (m - 1)(F_Q + B_Q) + E_Q, sums from the suffix's first element
//   [1] the most of sum F + (m - 1)(F_Q + B_Q) + sum B up to Q: what an all-reduce in front adds to
//   [2] the most of AR_s - sum of the B before s: E of a pivot in front
using Values = std::array<std::int64_t, 3>;
constexpr Values kNothing{kNever, kNever, kNever};

Values with(const Element& front, const Values& suffix, std::int64_t micro_batches) {
  const auto& [forward, backward, reduce] = front;
  const std::int64_t pivot = forward + (micro_batches - 1) * (forward + backward);
  return {std::max({forward + suffix[0], forward + backward + reduce + suffix[1],
                    pivot + std::max(reduce + backward, suffix[2])}),
          std::max(forward + backward + suffix[1], pivot + backward),
          std::max(reduce, suffix[2] - backward)};
}

int contexts(const StageCost& cost, int stages_from_it_on) {
  return std::min(stages_from_it_on, cost.micro_batches());
}

// Where a suffix's first stage ends, and which entry of the suffix behind it is meant.
struct Behind {
  int layer = 0;
  int device = 0;
  std::size_t entry = 0;
};
using Front = ParetoFront<3, Behind>;

// Suffixes by stages, first layer, first device.
class Suffixes {
 public:
  explicit Suffixes(const StageCost& cost)
      : cost_(cost),
        most_(std::min(cost.layers(), cost.devices())),
        fronts_((static_cast<std::size_t>(most_) + 1) * columns() * rows()) {
    for (int device = 1; device <= cost.devices(); ++device) {
      at(0, cost.layers(), device).add(kNothing, {});
    }
    for (int stages = 1; stages <= most_; ++stages) {
      for (int layer = cost.layers() - 1; layer >= 0; --layer) {
        for (int device = cost.devices() - 1; device >= 0; --device) fill(stages, layer, device);
      }
    }
  }

  StagePartition best() {
    StagePartition best{.ticks = std::numeric_limits<std::int64_t>::max()};
    for (int stages = 1; stages <= most_; ++stages) {
      const auto& entries = at(stages, 0, 0).entries();
      for (std::size_t i = 0; i < entries.size(); ++i) {
        if (entries[i].values[0] >= best.ticks) continue;
        best.ticks = entries[i].values[0];
        best.stages = stages_of(stages, i);
      }
    }
    return best;
  }

 private:
  std::size_t rows() const { return static_cast<std::size_t>(cost_.layers()) + 1; }
  std::size_t columns() const { return static_cast<std::size_t>(cost_.devices()) + 1; }
  Front& at(int stages, int layer, int device) {
    return fronts_[(static_cast<std::size_t>(stages) * rows() + static_cast<std::size_t>(layer)) *
                       columns() +
                   static_cast<std::size_t>(device)];
  }

  void fill(int stages, int layer, int device) {
    Front& here = at(stages, layer, device);
    for (int end = layer + 1; end <= cost_.layers(); ++end) {
      for (int next = device + 1; next <= cost_.devices(); ++next) {
        const auto& behind = at(stages - 1, end, next).entries();
        const PlacedStage stage{layer, end, device, next};
        if (behind.empty() || !cost_.fits(stage, contexts(cost_, stages))) continue;
        const Element element = element_of(cost_, stage);
        for (std::size_t i = 0; i < behind.size(); ++i) {
          Values values = behind[i].values;
          if (end < cost_.layers()) {
            const std::int64_t sent = cost_.transfer(end, next);
            values = with({sent, sent, 0}, values, cost_.micro_batches());
          }
          here.add(with(element, values, cost_.micro_batches()), {end, next, i});
        }
      }
    }
  }

  std::vector<PlacedStage> stages_of(int stages, std::size_t entry) {
    std::vector<PlacedStage> all;
    int layer = 0;
    int device = 0;
    for (; stages > 0; --stages) {
      const Behind behind = at(stages, layer, device).entries()[entry].from;
      all.push_back({layer, behind.layer, device, behind.device});
      layer = behind.layer;
      device = behind.device;
      entry = behind.entry;
    }
    return all;
  }

  const StageCost& cost_;
  int most_;  // stages
  std::vector<Front> fronts_;
};

}  // namespace

std::int64_t dapple_ticks(const StageCost& cost, const std::vector<PlacedStage>& stages) {
  std::vector<Element> all;
  for (const PlacedStage& stage : stages) {
    if (!all.empty()) {
      const std::int64_t sent = cost.transfer(stage.first_layer, stage.first_device);
      all.push_back({sent, sent, 0});
    }
    all.push_back(element_of(cost, stage));
  }
  std::int64_t most = 0;
  std::int64_t before = 0;  // forwards up to the pivot's
  for (std::size_t pivot = 0; pivot < all.size(); ++pivot) {
    before += all[pivot].forward;
    const std::int64_t begin =
        before + (cost.micro_batches() - 1) * (all[pivot].forward + all[pivot].backward);
    std::int64_t back = 0;
    for (std::size_t s = pivot + 1; s-- > 0;) {
      back += all[s].backward;
      most = std::max(most, begin + all[s].reduce + back);
    }
    back = 0;
    for (std::size_t s = pivot + 1; s < all.size(); ++s) {
      most = std::max(most, begin + all[s].reduce - back);
      back += all[s].backward;
    }
  }
  return most;
}

bool dapple_fits(const StageCost& cost, const std::vector<PlacedStage>& stages) {
  int left = static_cast<int>(stages.size());
  return std::ranges::all_of(
      stages, [&](const PlacedStage& stage) { return cost.fits(stage, contexts(cost, left--)); });
}

Result<StagePartition> partition_dapple(const StageCost& cost) {
  StagePartition best = Suffixes(cost).best();
  if (!best.stages.empty()) return best;
  return Status(Code::kInvalidArgument,
                format("dapple: no partition of %d layers fits %d devices (expected more memory or "
                       "devices)",
                       cost.layers(), cost.devices()));
}

}  // namespace gradwire
