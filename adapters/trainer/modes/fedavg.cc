#include "adapters/trainer/modes/fedavg.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "adapters/trainer/agreement.h"
#include "adapters/trainer/modes/losses.h"
#include "adapters/trainer/modes/mode_state.h"
#include "base/philox.h"
#include "base/text.h"
#include "gradwire/buffer.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

const std::string kAggregator = "aggregator/";

Status check(const FedAvgOptions& fedavg) {
  if (fedavg.local_steps < 1) {
    return {Code::kInvalidArgument, format("fedavg: %lld local steps (expected at least 1)",
                                           static_cast<long long>(fedavg.local_steps))};
  }
  if (!(fedavg.participation > 0 && fedavg.participation <= 1)) {
    return {Code::kInvalidArgument,
            format("fedavg: participation %g (expected above 0, at most 1)", fedavg.participation)};
  }
  if (fedavg.weight > 0 && std::isfinite(fedavg.weight)) return {};
  return {Code::kInvalidArgument,
          format("fedavg: weight %g (expected a finite number above 0)", fedavg.weight)};
}

// What this rank's change is multiplied by so that the mean over ranks is the weighted average.
// weight: 0 of a rank that takes no part; one does.
Result<double> share(Communicator& communicator, double weight) {
  double mean = weight;
  GW_TRY(average_over_ranks(communicator, {&mean, 1}));
  return weight / mean;
}

class Client {
 public:
  Client(GradientSource& source, const ModeOptions& options, std::size_t elems)
      : source_(source),
        options_(options),
        local_(elems),
        gradient_(elems),
        direction_(options.momentum > 0 ? elems : 0) {}

  void begin(std::span<const float> params) { std::ranges::copy(params, local_.begin()); }

  // `counts`: what its loss is multiplied by on its way into the mean over ranks.
  Status step(std::int64_t t, double counts, PendingSteps& pending) {
    const auto start = std::chrono::steady_clock::now();
    GW_ASSIGN(const double loss, source_.gradient(local_, t, gradient_));
    source_.commit();
    const auto lr = static_cast<float>(options_.rate(t));
    if (direction_.empty()) {
      descend(local_, gradient_, lr);
    } else {
      descend_with_momentum(local_, direction_, gradient_, lr,
                            static_cast<float>(options_.momentum));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    pending.add(counts * loss, options_.rate(t), took.count());
    return {};
  }
  std::span<float> direction() { return direction_; }

  void change(std::span<const float> params, float share, std::span<float> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = share * (params[i] - local_[i]);
  }

 private:
  GradientSource& source_;
  const ModeOptions& options_;
  std::vector<float> local_;  // x_i
  std::vector<float> gradient_;
  std::vector<float> direction_;  // u_i
};

// All rounds of one rank.
class Rounds {
 public:
  Rounds(Communicator& communicator, GradientSource& source, const ModeOptions& options,
         const FedAvgOptions& fedavg, std::span<float> params)
      : communicator_(communicator),
        source_(source),
        options_(options),
        fedavg_(fedavg),
        params_(params),
        change_(params.size()),
        tensors_(named_tensors(source.parameters(), change_)),
        client_(source, options, params.size()) {}

  Status open(const Registry& registry) {
    GW_ASSIGN(aggregator_, Aggregator::create(communicator_, registry, fedavg_.aggregator));
    for (const NamedTensor& tensor : tensors_) GW_TRY(aggregator_->add(tensor.name, tensor.tensor));
    GW_ASSIGN(share_, share(communicator_, fedavg_.weight));
    return {};
  }

  Status run(const OnModeStep& on_step) {
    const auto now = [&] { return parts(aggregator_->state()); };
    ModeCheckpoints checkpoints(options_);
    GW_ASSIGN(std::int64_t t, restore(checkpoints));
    pending_.continue_from(t);
    while (t < options_.steps) {
      const std::int64_t round = t / fedavg_.local_steps;
      const std::int64_t end = std::min((round + 1) * fedavg_.local_steps, options_.steps);
      GW_TRY(local(round, t, end));
      GW_TRY(together());
      t = end;
      GW_TRY(pending_.tell(communicator_, options_, on_step, params_));
      GW_TRY(checkpoints.after(t, now));
    }
    return {};
  }

 private:
  Status local(std::int64_t round, std::int64_t begin, std::int64_t end) {
    const int ranks = communicator_.size();
    bool mine = true;
    double counts = 1;
    if (fedavg_.participation < 1) {
      const std::vector<int> all = participants(fedavg_.seed, round, ranks, fedavg_.participation);
      mine = std::ranges::binary_search(all, communicator_.rank());
      counts = static_cast<double>(ranks) / static_cast<double>(all.size());
      GW_ASSIGN(share_, share(communicator_, mine ? fedavg_.weight : 0));
    }
    client_.begin(params_);
    for (std::int64_t t = begin; t < end; ++t) {
      if (mine) {
        GW_TRY(client_.step(t, counts, pending_));
      } else {
        pending_.add(0, options_.rate(t), 0);
      }
    }
    return {};
  }

  Status together() {
    client_.change(params_, static_cast<float>(share_), change_);
    for (std::size_t i = tensors_.size(); i-- > 0;) {
      GW_TRY(aggregator_->ready(static_cast<int>(i)));
    }
    GW_TRY(aggregator_->finish());
    if (fedavg_.warn) fedavg_.warn(aggregator_->warnings());
    descend(params_, change_, 1.0F);
    return average_running(communicator_, source_, share_);
  }

  ModeParts parts(std::span<const NamedTensor> aggregator) {
    const int rank = communicator_.rank();
    ModeParts parts;
    add_model(parts, source_.parameters(), params_, rank == 0);
    add_own(parts, rank, "direction", client_.direction());
    for (const NamedTensor& entry : aggregator) {
      if (is_counter(entry)) {
        add_shared(parts, rank, entry.name, entry.tensor);
      } else {
        add_own(parts, rank, kAggregator + entry.name, entry.tensor);
      }
    }
    add_running(parts, rank, &source_);
    return parts;
  }

  // Its counters are all ranks' alike.
  static bool is_counter(const NamedTensor& entry) { return entry.name.starts_with("aggregator."); }

  // The aggregator takes its state whole, and says itself what it can do without: checkpoints of
  // before may lack what it keeps by now.
  Result<std::int64_t> restore(ModeCheckpoints& checkpoints) {
    if (options_.saver == nullptr) return 0;
    std::vector<Buffer> memory;
    std::vector<NamedTensor> loaded;
    for (const NamedTensor& entry : aggregator_->state()) {
      if (!is_counter(entry) && entry.tensor.elems() > 0 &&
          options_.saver->lacks(own_name(communicator_.rank(), kAggregator + entry.name))) {
        continue;
      }
      GW_ASSIGN(Buffer bytes, Buffer::allocate(entry.tensor.bytes().size()));
      memory.push_back(std::move(bytes));
      loaded.push_back(
          {entry.name, memory.back().tensor(entry.tensor.shape(), entry.tensor.dtype())});
    }
    GW_ASSIGN(const std::int64_t done, checkpoints.restore(parts(loaded)));
    if (done == 0) return 0;
    // As many ranks as there were take from the others only what all have alike.
    const std::vector<std::vector<NamedTensor>> by_rank(
        static_cast<std::size_t>(communicator_.size()), loaded);
    GW_TRY(share_outcome(communicator_, aggregator_->load_state(by_rank), {},
                         options_.deadline_seconds)
               .error());
    return done;
  }

  Communicator& communicator_;
  GradientSource& source_;
  const ModeOptions& options_;
  const FedAvgOptions& fedavg_;
  std::span<float> params_;
  std::vector<float> change_;
  std::vector<NamedTensor> tensors_;
  Client client_;
  std::unique_ptr<Aggregator> aggregator_;
  PendingSteps pending_;
  double share_ = 1;  // of this rank in the round's average, times the ranks
};

}  // namespace

std::vector<int> participants(std::uint64_t seed, std::int64_t round, int ranks,
                              double participation) {
  const auto count = std::max<std::int64_t>(1, std::llround(participation * ranks));
  // The third use of such draws: epochs and samples have 0 and 1.
  const RandomStream draws(seed, RandomUse::kDataOrder, 2, kSharedRank, 0,
                           static_cast<std::uint64_t>(round));
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  // Those with the smallest draws: every set of so many ranks is as likely as any other.
  std::ranges::sort(all, {}, [&](int rank) {
    return std::pair(draws.word(static_cast<std::uint64_t>(rank)), rank);
  });
  all.resize(static_cast<std::size_t>(count));
  std::ranges::sort(all);
  return all;
}

Status run_fedavg(Communicator& communicator, const Registry& registry, GradientSource& source,
                  const ModeOptions& options, const FedAvgOptions& fedavg, std::span<float> params,
                  const OnModeStep& on_step) {
  GW_TRY(check(fedavg));
  Rounds rounds(communicator, source, options, fedavg, params);
  GW_TRY(rounds.open(registry));
  return rounds.run(on_step);
}

}  // namespace gradwire
