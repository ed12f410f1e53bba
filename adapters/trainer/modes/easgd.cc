#include "adapters/trainer/modes/easgd.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "adapters/trainer/modes/elastic.h"
#include "adapters/trainer/modes/mode_state.h"
#include "base/check.h"
#include "base/elements.h"
#include "base/text.h"

namespace gradwire {
namespace {

// A worker waits for the turns of all others, on_step in between.
OpOptions turn(const ModeOptions& options, int workers) {
  OpOptions how;
  how.deadline = deadline_in(options.deadline_seconds * (workers + 1));
  return how;
}

Status wait_for(Result<Work> work) {
  GW_ASSIGN(Work started, std::move(work));
  return started.wait();
}

// What a worker sends: W_j, its running statistics, and the loss.
std::size_t message_elems(std::size_t model, GradientSource* source) {
  return model + (source == nullptr ? 0 : source->running().size()) + 1;
}

Status master(Communicator& communicator, GradientSource* source, const ModeOptions& options,
              double rho, std::span<float> centre, const OnModeStep& on_step,
              std::vector<int>* turns) {
  const int workers = communicator.size() - 1;
  std::vector<float> theirs(message_elems(centre.size(), source));
  std::vector<float> pull(centre.size());
  const std::size_t statistics = theirs.size() - centre.size() - 1;
  std::vector<float> rows(statistics * static_cast<std::size_t>(workers));  // by worker
  const auto parts = [&] {
    ModeParts all;
    if (source != nullptr) add_model(all, source->parameters(), centre, true);
    add_running(all, 0, source);
    return all;
  };
  ModeCheckpoints checkpoints(options.saver);
  GW_ASSIGN(std::int64_t t, checkpoints.restore(parts()));
  for (; t < options.steps; ++t) {
    const auto lr = static_cast<float>(options.rate(t));
    ModeStep step{.step = t, .loss = 0, .lr = options.rate(t), .params = centre};
    for (int worker = 1; worker <= workers; ++worker) {
      const OpOptions how = turn(options, workers);
      GW_TRY(
          wait_for(communicator.send(const_view_of(std::span<const float>(centre)), worker, how)));
      GW_TRY(wait_for(communicator.recv(view_of(std::span(theirs)), worker, how)));
      elastic_pull(std::span(theirs).first(centre.size()), centre, static_cast<float>(rho), pull);
      elastic_attract(centre, pull, lr);
      std::ranges::copy(std::span(theirs).subspan(centre.size(), statistics),
                        rows.begin() + static_cast<std::ptrdiff_t>(statistics) * (worker - 1));
      step.loss += static_cast<double>(theirs.back()) / workers;
      if (turns != nullptr) turns->push_back(worker);
    }
    if (source != nullptr) mean_of_rows(rows, source->running());
    if (on_step) GW_TRY(on_step(step));
    GW_TRY(checkpoints.after(t + 1, parts));
  }
  return {};
}

Status worker(Communicator& communicator, GradientSource& source, const ModeOptions& options,
              double rho, std::span<float> w) {
  const int workers = communicator.size() - 1;
  const int rank = communicator.rank();
  std::vector<float> centre(w.size());
  std::vector<float> gradient(w.size());
  std::vector<float> pull(w.size());
  std::vector<float> own(message_elems(w.size(), &source));
  const auto parts = [&] {
    ModeParts all;
    add_own(all, rank, "w", w);
    add_own(all, rank, "running", source.running());
    return all;
  };
  ModeCheckpoints checkpoints(options.saver);
  GW_ASSIGN(std::int64_t t, checkpoints.restore(parts()));
  for (; t < options.steps; ++t) {
    const OpOptions how = turn(options, workers);
    GW_TRY(wait_for(communicator.recv(view_of(std::span(centre)), 0, how)));
    GW_ASSIGN(const double loss, source.gradient(w, t, gradient));
    source.commit();
    std::ranges::copy(source.running(), std::ranges::copy(w, own.begin()).out);
    own.back() = static_cast<float>(loss);
    GW_TRY(wait_for(communicator.send(const_view_of(std::span<const float>(own)), 0, how)));
    elastic_pull(w, centre, static_cast<float>(rho), pull);
    elastic_descend(w, gradient, pull, static_cast<float>(options.rate(t)));
    GW_TRY(checkpoints.after(t + 1, parts));
  }
  return {};
}

}  // namespace

Status run_easgd(Communicator& communicator, GradientSource* source, const ModeOptions& options,
                 double rho, std::span<float> params, const OnModeStep& on_step,
                 std::vector<int>* turns) {
  if (communicator.size() < 2) {
    return {Code::kInvalidArgument,
            "easgd: 1 rank (a master and at least one worker, 2 ranks, wanted)"};
  }
  if (!(rho > 0) || !std::isfinite(rho)) {
    return {Code::kInvalidArgument, format("easgd: rho %g; a finite number above 0 wanted", rho)};
  }
  if (communicator.rank() == 0) {
    GW_CHECK(source != nullptr || options.saver == nullptr);
    return master(communicator, source, options, rho, params, on_step, turns);
  }
  GW_CHECK(source != nullptr);
  return worker(communicator, *source, options, rho, params);
}

}  // namespace gradwire
