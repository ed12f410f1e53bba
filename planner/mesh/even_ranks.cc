#include "planner/mesh/even_ranks.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <utility>

#include "trainer/pipeline/cut_uneven.h"

namespace gradwire {
namespace {

class EndsOfStages {
 public:
  EndsOfStages(const StagedRanks& ranks, std::vector<Range> cuts)
      : ranks_(ranks), cuts_(std::move(cuts)), holders_(cuts_.size()) {
    for (std::size_t rank = 0; rank < ranks_.stages.size(); ++rank) {
      before_.emplace_back();
      for (std::size_t place = 0; place < ranks_.stages[rank].size(); ++place) {
        std::vector<std::int64_t>& sums = before_.back().emplace_back(1);
        for (const std::int64_t ticks : ranks_.ticks[rank][place]) {
          sums.push_back(sums.back() + ticks);
        }
        const auto stage = static_cast<std::size_t>(ranks_.stages[rank][place]);
        holders_[stage].push_back({rank, place});
      }
    }
    for (std::size_t rank = 0; rank < ranks_.stages.size(); ++rank) {
      busy_.push_back(busy_of(rank));
      scale_ = std::max(scale_, static_cast<double>(busy_.back()));
    }
    scale_ = std::max(scale_, 1.0);
  }

  // Ends by itself, as each move is for the better; of many stages when it has looked at so many.
  void settle(bool slowest_first) {
    left_ = kMostLooks;
    while (left_ > 0) {
      const bool moved = move_all(slowest_first);
      if (!hand_over_all(slowest_first) && !moved) return;
    }
  }

  std::int64_t slowest() const { return std::ranges::max(busy_); }
  const std::vector<Range>& cuts() const { return cuts_; }

 private:
  // Some milliseconds: a search asks for thousands of divisions.
  static constexpr std::int64_t kMostLooks = 150'000;

  struct Worth {
    double first = 0;
    double second = 0;
    double third = 0;
    friend auto operator<=>(const Worth&, const Worth&) = default;
  };

  // A stage of a rank.
  struct Holder {
    std::size_t rank = 0;
    std::size_t place = 0;  // among the rank's stages
  };

  std::int64_t time_of(const Holder& holder) const {
    const std::vector<std::int64_t>& before = before_[holder.rank][holder.place];
    const Range& cut = cuts_[static_cast<std::size_t>(ranks_.stages[holder.rank][holder.place])];
    return before[static_cast<std::size_t>(cut.end)] - before[static_cast<std::size_t>(cut.begin)];
  }
  std::int64_t busy_of(std::size_t rank) const {
    std::int64_t sum = 0;
    for (std::size_t place = 0; place < ranks_.stages[rank].size(); ++place) {
      sum += time_of({rank, place});
    }
    return sum;
  }

  // Of the ends as they are. A high power: a sum of which the slowest ranks are nearly all, however
  // fast their devices are.
  Worth worth(bool slowest_first) {
    left_ -= static_cast<std::int64_t>(cuts_.size() + busy_.size());
    double ranks = 0;
    for (const std::int64_t busy : busy_) {
      const double part = static_cast<double>(busy) / scale_;
      const double square = part * part;
      const double fourth = square * square;
      ranks += fourth * fourth;
    }
    double stages = 0;
    for (std::size_t one = 0; one < cuts_.size(); ++one) {
      for (const Holder& holder : holders_[one]) {
        const double part = static_cast<double>(time_of(holder)) / scale_;
        stages += part * part;
      }
    }
    const auto most = static_cast<double>(slowest());
    return slowest_first ? Worth{most, ranks, stages} : Worth{ranks, most, stages};
  }

  void move(std::size_t stage, std::int64_t end) {
    cuts_[stage].end = end;
    cuts_[stage + 1].begin = end;
    for (const std::size_t one : {stage, stage + 1}) {
      for (const Holder& holder : holders_[one]) busy_[holder.rank] = busy_of(holder.rank);
    }
  }

  // Whether any end has moved.
  bool move_all(bool slowest_first) {
    bool moved = false;
    for (std::size_t stage = 0; stage + 1 < cuts_.size() && left_ > 0; ++stage) {
      const std::int64_t was = cuts_[stage].end;
      std::int64_t best = was;
      Worth least = worth(slowest_first);
      for (std::int64_t end = cuts_[stage].begin + 1; end < cuts_[stage + 1].end; ++end) {
        move(stage, end);
        const Worth here = worth(slowest_first);
        if (here < least) {
          least = here;
          best = end;
        }
      }
      move(stage, best);
      moved = moved || best != was;
    }
    return moved;
  }

  // A run less for stage `from`, and one more for `to`: all between them move by one.
  void hand_over(std::size_t from, std::size_t to) {
    const std::int64_t by = from < to ? -1 : 1;
    for (std::size_t stage = std::min(from, to); stage < std::max(from, to); ++stage) {
      cuts_[stage].end += by;
      cuts_[stage + 1].begin += by;
    }
    for (std::size_t rank = 0; rank < busy_.size(); ++rank) busy_[rank] = busy_of(rank);
  }

  // Whether any stage has handed a run over to another one, which single ends may not reach: those
  // between them may have no room.
  bool hand_over_all(bool slowest_first) {
    bool moved = false;
    for (std::size_t from = 0; from < cuts_.size(); ++from) {
      for (std::size_t to = 0; to < cuts_.size(); ++to) {
        if (from == to || cuts_[from].size() < 2 || left_ <= 0) continue;
        const Worth before = worth(slowest_first);
        hand_over(from, to);
        if (worth(slowest_first) < before) {
          moved = true;
        } else {
          hand_over(to, from);
        }
      }
    }
    return moved;
  }

  const StagedRanks& ranks_;
  std::vector<Range> cuts_;
  std::vector<std::vector<Holder>> holders_;                    // [stage]: where it is
  std::vector<std::vector<std::vector<std::int64_t>>> before_;  // as ticks: of all runs before it
  std::vector<std::int64_t> busy_;                              // [rank]
  double scale_ = 1;
  std::int64_t left_ = 0;  // stages and ranks that may still be looked at
};

}  // namespace

std::int64_t slowest_rank(const StagedRanks& ranks, const std::vector<Range>& cuts) {
  return EndsOfStages(ranks, cuts).slowest();
}

std::vector<Range> even_ranks(const StagedRanks& ranks, std::vector<Range> cuts) {
  EndsOfStages straight(ranks, cuts);
  straight.settle(true);
  // Or first by what all ranks have: that leads load away from the slowest ones over others that
  // gain nothing by it.
  EndsOfStages around(ranks, std::move(cuts));
  around.settle(false);
  around.settle(true);
  return around.slowest() <= straight.slowest() ? around.cuts() : straight.cuts();
}

Result<std::vector<Range>> even_stages(const StagedRanks& ranks, std::size_t stages) {
  std::vector<std::vector<std::int64_t>> most(stages);
  for (std::size_t rank = 0; rank < ranks.stages.size(); ++rank) {
    for (std::size_t place = 0; place < ranks.stages[rank].size(); ++place) {
      const std::vector<std::int64_t>& here = ranks.ticks[rank][place];
      auto& one = most[static_cast<std::size_t>(ranks.stages[rank][place])];
      one.resize(here.size());
      std::ranges::transform(one, here, one.begin(),
                             [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
    }
  }
  return cut_uneven(most);
}

Result<std::vector<Range>> even_division(const StagedRanks& ranks, const std::vector<Range>& own) {
  GW_ASSIGN(std::vector<Range> even, even_stages(ranks, own.size()));
  even = even_ranks(ranks, std::move(even));
  // Where ranks have several stages one start may end better than another.
  std::size_t held = 0;
  for (const std::vector<int>& stages : ranks.stages) held += stages.size();
  if (held == ranks.stages.size()) return even;
  std::vector<Range> moved = even_ranks(ranks, own);
  return slowest_rank(ranks, moved) < slowest_rank(ranks, even) ? moved : even;
}

}  // namespace gradwire
