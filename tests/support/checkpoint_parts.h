// A job's tensors for tests of checkpoints: values that tell their step, in cuts of any number of
// ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/trainer/checkpoints.h"
#include "base/elements.h"
#include "gradwire/schedule.h"

namespace gradwire::testing {

inline constexpr std::int64_t kRows = 37;
inline constexpr std::int64_t kColumns = 11;
inline const Shape kWeightShape = Shape::matrix(kRows, kColumns);

// Element e of the weight after `step` steps.
inline float weight_at(std::int64_t step, std::int64_t e) {
  return static_cast<float>(step * 1000 + e);
}

// What a rank keeps: its piece of "weight", which all ranks own parts of, and "rank-R/counter".
class JobState {
 public:
  JobState(std::int64_t step, int rank, int ranks)
      : range_(piece(kWeightShape.elems(), ranks, rank)), counter_{step, rank} {
    for (std::int64_t e = range_.begin; e < range_.end; ++e) weight_.push_back(weight_at(step, e));
    counter_name_ = "rank-" + std::to_string(rank) + "/counter";
  }

  std::vector<TensorPart> parts() const {
    return {
        {"weight", TensorBox::of(kWeightShape), range_.begin, const_view_of(std::span(weight_))},
        whole_tensor(counter_name_, const_view_of(std::span(counter_)))};
  }

 private:
  Range range_;
  std::vector<float> weight_;
  std::vector<std::int64_t> counter_;
  std::string counter_name_;
};

inline Status save_job(Communicator& communicator, const CheckpointsOptions& options,
                       std::int64_t step) {
  CheckpointPosition position;
  position.step = step;
  position.mesh.dp = communicator.size();
  const JobState state(step, communicator.rank(), communicator.size());
  return Checkpoints(communicator, options).save(position, {{"model", "toy"}}, state.parts());
}

// "" if all that the checkpoint holds is of its own step.
inline std::string what_is_wrong(CheckpointReader& reader) {
  if (const Status whole = reader.verify(); !whole.ok()) return std::string(whole.message());
  const std::int64_t step = reader.manifest().position.step;
  std::vector<float> weight(static_cast<std::size_t>(kWeightShape.elems()));
  const Status read = reader.read("weight", kWeightShape, 0, view_of(std::span(weight)));
  if (!read.ok()) return std::string(read.message());
  for (std::int64_t e = 0; e < kWeightShape.elems(); ++e) {
    if (weight[static_cast<std::size_t>(e)] != weight_at(step, e)) {
      return "element " + std::to_string(e) + " is not of step " + std::to_string(step);
    }
  }
  for (int rank = 0; rank < reader.manifest().position.mesh.ranks(); ++rank) {
    std::vector<std::int64_t> counter(2);
    const Status got =
        reader.read("rank-" + std::to_string(rank) + "/counter", view_of(std::span(counter)));
    if (!got.ok()) return std::string(got.message());
    if (counter != std::vector<std::int64_t>{step, rank}) return "a counter of another step";
  }
  return {};
}

// The last complete checkpoint of a folder, looked at from outside the job: its step, -1 for none,
// or what is wrong with it.
inline std::string last_of(const std::string& folder) {
  const CheckpointStore store(folder);
  const auto steps = store.complete();
  if (!steps.has_value()) return std::string(steps.error().message());
  if (steps.value().empty()) return "-1";
  auto reader = CheckpointReader::open(store.path_of(steps.value().back()));
  if (!reader.has_value()) return std::string(reader.error().message());
  const std::string wrong = what_is_wrong(reader.value());
  return wrong.empty() ? std::to_string(reader.value().manifest().position.step) : wrong;
}

}  // namespace gradwire::testing
