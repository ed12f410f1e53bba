#include "adapters/trainer/modes/easgd.h"

#include <algorithm>
#include <csignal>
#include <utility>

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

// What a worker sends: W_j, its running statistics, the loss, and where runs may be interrupted the
// signal that asked it to end, 0: none. The master's message is the centre, and likewise the signal
// that all end by after this step.
std::size_t message_elems(std::size_t model, GradientSource* source, const ModeOptions& options) {
  const std::size_t words = options.interruption == nullptr ? 0 : 1;
  return model + (source == nullptr ? 0 : source->running().size()) + 1 + words;
}

// What a rank puts behind its message, and takes from behind one that came.
void add_word(const ModeOptions& options, int signal, std::vector<float>& message) {
  if (options.interruption != nullptr) message.back() = static_cast<float>(signal);
}
int word_of(const ModeOptions& options, const std::vector<float>& message) {
  if (options.interruption == nullptr) return 0;
  const float word = message.back();
  return word > 0 && word < static_cast<float>(NSIG) ? static_cast<int>(word) : 0;
}

Status master(Communicator& communicator, GradientSource* source, const ModeOptions& options,
              const Elasticity& elasticity, std::span<float> centre, const OnModeStep& on_step,
              std::vector<int>* turns) {
  const int workers = communicator.size() - 1;
  std::vector<float> theirs(message_elems(centre.size(), source, options));
  std::vector<float> ours(centre.size() + (options.interruption == nullptr ? 0 : 1));
  std::vector<float> pull(centre.size());
  const std::size_t statistics = source == nullptr ? 0 : source->running().size();
  int asked = 0;  // the signal that some rank was asked to end by
  std::vector<float> rows(statistics * static_cast<std::size_t>(workers));  // by worker
  const auto parts = [&] {
    ModeParts all;
    if (source != nullptr) add_model(all, source->parameters(), centre, true);
    add_running(all, 0, source);
    return all;
  };
  ModeCheckpoints checkpoints(options);
  GW_ASSIGN(std::int64_t t, checkpoints.restore(parts()));
  for (; t < options.steps; ++t) {
    const auto lr = static_cast<float>(options.rate(t));
    ModeStep step{.step = t, .loss = 0, .lr = options.rate(t), .params = centre};
    if (options.interruption != nullptr) {
      if (asked == 0) asked = options.interruption->asked();
      options.interruption->hear(asked);
      add_word(options, asked, ours);
    }
    int heard = 0;  // in this step: for the next one
    for (int worker = 1; worker <= workers; ++worker) {
      const OpOptions how = turn(options, workers);
      std::ranges::copy(centre, ours.begin());
      GW_TRY(wait_for(communicator.send(const_view_of(std::span<const float>(ours)), worker, how)));
      GW_TRY(wait_for(communicator.recv(view_of(std::span(theirs)), worker, how)));
      elastic_pull(std::span(theirs).first(centre.size()), centre, elasticity, pull);
      elastic_attract(centre, pull, elasticity, lr);
      std::ranges::copy(std::span(theirs).subspan(centre.size(), statistics),
                        rows.begin() + static_cast<std::ptrdiff_t>(statistics) * (worker - 1));
      step.loss += static_cast<double>(theirs[centre.size() + statistics]) / workers;
      if (asked == 0) heard = std::max(heard, word_of(options, theirs));
      if (turns != nullptr) turns->push_back(worker);
    }
    asked = std::max(asked, heard);
    if (source != nullptr) mean_of_rows(rows, source->running());
    if (on_step) GW_TRY(on_step(step));
    GW_TRY(checkpoints.after(t + 1, parts));
  }
  return {};
}

Status worker(Communicator& communicator, GradientSource& source, const ModeOptions& options,
              const Elasticity& elasticity, std::span<float> w) {
  const int workers = communicator.size() - 1;
  const int rank = communicator.rank();
  std::vector<float> theirs(w.size() + (options.interruption == nullptr ? 0 : 1));
  const std::span<float> centre = std::span(theirs).first(w.size());
  std::vector<float> gradient(w.size());
  std::vector<float> pull(w.size());
  std::vector<float> own(message_elems(w.size(), &source, options));
  const auto parts = [&] {
    ModeParts all;
    add_own(all, rank, "w", w);
    add_own(all, rank, "running", source.running());
    return all;
  };
  ModeCheckpoints checkpoints(options);
  GW_ASSIGN(std::int64_t t, checkpoints.restore(parts()));
  for (; t < options.steps; ++t) {
    const OpOptions how = turn(options, workers);
    GW_TRY(wait_for(communicator.recv(view_of(std::span(theirs)), 0, how)));
    if (options.interruption != nullptr) options.interruption->hear(word_of(options, theirs));
    GW_ASSIGN(const double loss, source.gradient(w, t, gradient));
    source.commit();
    const auto end = std::ranges::copy(source.running(), std::ranges::copy(w, own.begin()).out).out;
    *end = static_cast<float>(loss);
    if (options.interruption != nullptr) add_word(options, options.interruption->asked(), own);
    GW_TRY(wait_for(communicator.send(const_view_of(std::span<const float>(own)), 0, how)));
    elastic_pull(w, centre, elasticity, pull);
    elastic_descend(w, gradient, pull, elasticity, static_cast<float>(options.rate(t)));
    GW_TRY(checkpoints.after(t + 1, parts));
  }
  return {};
}

}  // namespace

Status run_easgd(Communicator& communicator, GradientSource* source, const ModeOptions& options,
                 const Elasticity& elasticity, std::span<float> params, const OnModeStep& on_step,
                 std::vector<int>* turns) {
  if (communicator.size() < 2) {
    return {Code::kInvalidArgument, "easgd: 1 rank (expected at least 2: a master and a worker)"};
  }
  GW_TRY(check_elasticity(elasticity).with_context("easgd"));
  if (communicator.rank() == 0) {
    GW_CHECK(source != nullptr || options.saver == nullptr);
    return master(communicator, source, options, elasticity, params, on_step, turns);
  }
  GW_CHECK(source != nullptr);
  return worker(communicator, *source, options, elasticity, params);
}

}  // namespace gradwire
