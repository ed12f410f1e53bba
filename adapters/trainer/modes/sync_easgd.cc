#include "adapters/trainer/modes/sync_easgd.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "adapters/trainer/modes/coded_sum.h"
#include "adapters/trainer/modes/elastic.h"
#include "adapters/trainer/modes/losses.h"
#include "adapters/trainer/modes/mode_state.h"
#include "base/elements.h"
#include "base/text.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

// One worker's loop.
class SyncEasgdWorker {
 public:
  SyncEasgdWorker(Communicator& communicator, GradientSource& source, const ModeOptions& options,
                  const ElasticOptions& elastic, std::span<float> w, std::span<float> centre)
      : communicator_(communicator),
        source_(source),
        options_(options),
        elastic_(elastic),
        w_(w),
        centre_(centre),
        pull_(w.size()),
        sum_(w.size()),
        gradient_(w.size()),
        direction_(options.momentum > 0 ? w.size() : 0),
        ahead_(direction_.size()) {}

  Status open(const Registry& registry) {
    if (elastic_.compressor == "none") return {};
    GW_ASSIGN(coded_, CodedSum::open(communicator_, registry, source_.parameters(),
                                     {elastic_.compressor, elastic_.allow_unsafe, elastic_.seed}));
    return {};
  }
  Status step(std::int64_t t, const std::function<void(ElasticEvent)>& on_event);
  PendingSteps& pending() { return pending_; }
  ModeParts parts();

 private:
  Status start_exchange(std::int64_t t);
  Status end_exchange();
  Result<double> gradient(std::int64_t t);
  std::span<const float> direction() const { return direction_.empty() ? gradient_ : direction_; }

  Communicator& communicator_;
  GradientSource& source_;
  const ModeOptions& options_;
  const ElasticOptions& elastic_;
  std::span<float> w_;
  std::span<float> centre_;
  std::vector<float> pull_;  // e_i
  std::vector<float> sum_;
  std::vector<float> gradient_;
  std::vector<float> direction_;  // u_i
  std::vector<float> ahead_;      // W_i - lr momentum u_i
  std::optional<CodedSum> coded_;
  std::optional<Work> exchange_;
  PendingSteps pending_;
};

Status SyncEasgdWorker::start_exchange(std::int64_t t) {
  elastic_pull(w_, centre_, elastic_.elasticity(), pull_);
  // Coded sums are done at once: lengths have to travel first.
  if (coded_) return coded_->sum(pull_, static_cast<std::uint64_t>(t), sum_);
  OpOptions how;
  how.algorithm = elastic_.algorithm;
  GW_ASSIGN(Work work, communicator_.all_reduce(const_view_of(std::span<const float>(pull_)),
                                                view_of(std::span(sum_)), ReduceOp::kSum, how));
  exchange_.emplace(std::move(work));
  return {};
}

Status SyncEasgdWorker::end_exchange() {
  if (!exchange_) return {};
  const Status status = exchange_->wait();
  exchange_.reset();
  return status;
}

Result<double> SyncEasgdWorker::gradient(std::int64_t t) {
  if (direction_.empty()) return source_.gradient(w_, t, gradient_);
  const auto back = static_cast<float>(options_.rate(t) * options_.momentum);
  std::ranges::copy(w_, ahead_.begin());
  descend(ahead_, direction_, back);
  GW_ASSIGN(const double loss, source_.gradient(ahead_, t, gradient_));
  add_momentum(direction_, gradient_, static_cast<float>(options_.momentum));
  return loss;
}

ModeParts SyncEasgdWorker::parts() {
  const int rank = communicator_.rank();
  ModeParts parts;
  add_model(parts, source_.parameters(), centre_, rank == 0);
  add_own(parts, rank, "w", w_);
  add_own(parts, rank, "direction", direction_);
  if (coded_) add_own(parts, rank, "coders/", coded_->state());
  add_running(parts, rank, &source_);
  return parts;
}

Status SyncEasgdWorker::step(std::int64_t t, const std::function<void(ElasticEvent)>& on_event) {
  const auto tell = [&](ElasticEvent event) {
    if (on_event) on_event(event);
  };
  const bool exchanges = t % elastic_.period == 0;
  if (exchanges) {
    GW_TRY(start_exchange(t));
    tell(ElasticEvent::kExchangeStarts);
  }
  const auto start = std::chrono::steady_clock::now();
  GW_ASSIGN(const double loss, gradient(t));
  source_.commit();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  pending_.add(loss, options_.rate(t), took.count());
  tell(ElasticEvent::kGradientReady);
  const auto lr = static_cast<float>(options_.rate(t));
  if (!exchanges) {
    descend(w_, direction(), lr);
    return {};
  }
  GW_TRY(end_exchange());
  tell(ElasticEvent::kExchangeEnds);
  elastic_descend(w_, direction(), pull_, elastic_.elasticity(), lr);
  elastic_attract(centre_, sum_, elastic_.elasticity(), lr);
  return {};
}

}  // namespace

Status check_elastic(const ModeOptions& options, const ElasticOptions& elastic) {
  GW_TRY(check_elasticity(elastic.elasticity()));
  if (elastic.period < 1) {
    return {Code::kInvalidArgument, format("elastic averaging: period %lld (expected at least 1)",
                                           static_cast<long long>(elastic.period))};
  }
  if (options.momentum >= 0 && options.momentum < 1) return {};
  return {Code::kInvalidArgument,
          format("elastic averaging: momentum %g (expected 0 <= momentum < 1)", options.momentum)};
}

Status run_sync_easgd(Communicator& communicator, const Registry& registry, GradientSource& source,
                      const ModeOptions& options, const ElasticOptions& elastic, std::span<float> w,
                      std::span<float> centre, const OnModeStep& on_step,
                      const std::function<void(ElasticEvent)>& on_event) {
  GW_TRY(check_elastic(options, elastic));
  std::ranges::copy(w, centre.begin());
  SyncEasgdWorker worker(communicator, source, options, elastic, w, centre);
  GW_TRY(worker.open(registry));
  const auto parts = [&] { return worker.parts(); };
  ModeCheckpoints checkpoints(options);
  GW_ASSIGN(std::int64_t t, checkpoints.restore(parts()));
  worker.pending().continue_from(t);
  for (; t < options.steps; ++t) {
    GW_TRY(worker.step(t, on_event));
    const bool exchanged = t % elastic.period == 0;
    if (!exchanged && t + 1 < options.steps) continue;
    GW_TRY(average_running(communicator, source));
    GW_TRY(worker.pending().tell(communicator, options, on_step, centre));
    GW_TRY(checkpoints.after(t + 1, parts));
  }
  return {};
}

}  // namespace gradwire
