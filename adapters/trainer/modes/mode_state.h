// What modes have in common of keeping their state.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/modes/mode.h"
#include "gradwire/communicator.h"
#include "trainer/parameters.h"

namespace gradwire {

using ModeParts = std::vector<ModePart>;

// "parameters/NAME", of the elements [first, first + values.size()) of the flat model.
void add_model(ModeParts& parts, const ParameterTable& table, std::span<float> values, bool written,
               std::int64_t first = 0);
// "rank-R/mode/NAME": this rank's alone.
std::string own_name(int rank, const std::string& name);
// Under that name; nothing for a view of no elements.
void add_own(ModeParts& parts, int rank, const std::string& name, const TensorView& values);
void add_own(ModeParts& parts, int rank, const std::string& name, std::span<float> values);
void add_own(ModeParts& parts, int rank, const std::string& name, std::span<std::int64_t> values);
// The same for several, with `prefix` before their names.
void add_own(ModeParts& parts, int rank, const std::string& prefix,
             std::span<const NamedTensor> tensors);
// "mode/NAME": what all ranks have alike, rank 0's.
void add_shared(ModeParts& parts, int rank, const std::string& name, const TensorView& values);
// "buffers/running": running statistics that all ranks have alike at a step's end, rank 0's.
void add_running(ModeParts& parts, int rank, GradientSource* source);

// When a run saves: at every end of a step that has its state together, where that is due or ranks
// have agreed to end.
class ModeCheckpoints {
 public:
  explicit ModeCheckpoints(const ModeOptions& options)
      : saver_(options.saver), interruption_(options.interruption) {}
  // Before the first step; returns how many are done.
  Result<std::int64_t> restore(const ModeParts& parts);
  // After so many steps, with all state together. `parts` is asked only where one is due. An
  // interrupted run's error is Interruption::end().
  Status after(std::int64_t done, const std::function<ModeParts()>& parts);
  // Whether one is due after so many steps.
  bool due(std::int64_t done) const { return done >= next_ || ends(); }
  // The steps after which one is due next, or `steps`.
  std::int64_t next(std::int64_t steps) const { return next_ < steps ? next_ : steps; }

 private:
  bool ends() const {
    return saver_ != nullptr && interruption_ != nullptr && interruption_->agreed() != 0;
  }

  ModeSaver* saver_;
  Interruption* interruption_;
  std::int64_t next_ = std::numeric_limits<std::int64_t>::max();
};

// Collective: ranks that go their own ways have stopped at a common step, and hear whether one of
// them was asked to end.
Status meet(Communicator& communicator, Interruption* interruption);

// Steps of what run(begin, end) takes together, from one checkpoint to the next; it returns where
// it stopped, the same on all ranks, which is `end` unless a rank was asked to end. `end` also has
// parts(), and adopt(done) for after they were written to. All ranks' own ends alike.
template <typename End>
Status run_between_checkpoints(End& end, Communicator& communicator, const ModeOptions& options) {
  const auto parts = [&] { return end.parts(); };
  ModeCheckpoints checkpoints(options);
  GW_ASSIGN(std::int64_t t, checkpoints.restore(parts()));
  end.adopt(t);
  while (t < options.steps) {
    const std::int64_t next = checkpoints.next(options.steps);
    GW_ASSIGN(t, end.run(t, next));
    GW_TRY(meet(communicator, options.interruption));
    GW_TRY(checkpoints.after(t, parts));
  }
  return {};
}

// Running statistics of ranks that step one model together: collective, all ranks' sums, committed
// on each. Those that computed nothing add nothing; `source` is null where there are none.
Status commit_together(Communicator& communicator, GradientSource* source);
// Of ranks with models of their own: collective, all get the mean of share * running().
Status average_running(Communicator& communicator, GradientSource& source, double share = 1);
// running() becomes the mean of rows that lie one after another.
void mean_of_rows(std::span<const float> rows, std::span<float> running);
// Collective: all get rank 0's.
Status share_running(Communicator& communicator, GradientSource* source, double seconds);

}  // namespace gradwire
