#include "adapters/trainer/modes/fedavg.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "adapters/trainer/modes/losses.h"
#include "base/text.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

Status check(const FedAvgOptions& fedavg) {
  if (fedavg.local_steps < 1) {
    return {Code::kInvalidArgument, format("fedavg: %lld local steps; at least 1 wanted",
                                           static_cast<long long>(fedavg.local_steps))};
  }
  if (fedavg.weight > 0 && std::isfinite(fedavg.weight)) return {};
  return {Code::kInvalidArgument,
          format("fedavg: weight %g; a finite number above 0 wanted", fedavg.weight)};
}

// What this rank's change is multiplied by so that the mean over ranks is the weighted average.
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

  Status step(std::int64_t t, PendingSteps& pending) {
    const auto start = std::chrono::steady_clock::now();
    GW_ASSIGN(const double loss, source_.gradient(local_, t, gradient_));
    const auto lr = static_cast<float>(options_.rate(t));
    if (direction_.empty()) {
      descend(local_, gradient_, lr);
    } else {
      descend_with_momentum(local_, direction_, gradient_, lr,
                            static_cast<float>(options_.momentum));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    pending.add(loss, options_.rate(t), took.count());
    return {};
  }

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

}  // namespace

Status run_fedavg(Communicator& communicator, const Registry& registry, GradientSource& source,
                  const ModeOptions& options, const FedAvgOptions& fedavg, std::span<float> params,
                  const OnModeStep& on_step) {
  GW_TRY(check(fedavg));
  GW_ASSIGN(const double own_share, share(communicator, fedavg.weight));
  std::vector<float> change(params.size());
  GW_ASSIGN(const auto aggregator, Aggregator::create(communicator, registry, fedavg.aggregator));
  const std::vector<NamedTensor> tensors = named_tensors(source.parameters(), change);
  for (const NamedTensor& tensor : tensors) GW_TRY(aggregator->add(tensor.name, tensor.tensor));
  Client client(source, options, params.size());
  PendingSteps pending;
  for (std::int64_t t = 0; t < options.steps;) {
    client.begin(params);
    const std::int64_t end = std::min(t + fedavg.local_steps, options.steps);
    for (; t < end; ++t) GW_TRY(client.step(t, pending));
    client.change(params, static_cast<float>(own_share), change);
    for (std::size_t i = tensors.size(); i-- > 0;) {
      GW_TRY(aggregator->ready(static_cast<int>(i)));
    }
    GW_TRY(aggregator->finish());
    descend(params, change, 1.0F);
    GW_TRY(pending.tell(communicator, options, on_step, params));
  }
  return {};
}

}  // namespace gradwire
