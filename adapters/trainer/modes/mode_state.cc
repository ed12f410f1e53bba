#include "adapters/trainer/modes/mode_state.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "adapters/trainer/modes/losses.h"
#include "base/elements.h"

namespace gradwire {
namespace {

// That a worker may be behind another: as long as a checkpoint, which they meet for, may take.
constexpr double kSecondsToMeet = 600;

}  // namespace

void add_model(ModeParts& parts, const ParameterTable& table, std::span<float> values, bool written,
               std::int64_t first) {
  const std::int64_t end = first + static_cast<std::int64_t>(values.size());
  for (const ParameterInfo& info : table) {
    const std::int64_t from = std::max(first, info.offset);
    const std::int64_t to = std::min(end, info.offset + info.shape.elems());
    if (from >= to) continue;
    const std::span<float> part =
        values.subspan(static_cast<std::size_t>(from - first), static_cast<std::size_t>(to - from));
    parts.push_back(
        {"parameters/" + info.name, info.shape, from - info.offset, view_of(part), written});
  }
}

std::string own_name(int rank, const std::string& name) {
  return "rank-" + std::to_string(rank) + "/mode/" + name;
}
void add_own(ModeParts& parts, int rank, const std::string& name, const TensorView& values) {
  if (values.elems() == 0) return;
  parts.push_back({own_name(rank, name), values.shape(), 0, values, true});
}
void add_own(ModeParts& parts, int rank, const std::string& name, std::span<float> values) {
  if (!values.empty()) add_own(parts, rank, name, view_of(values));
}
void add_own(ModeParts& parts, int rank, const std::string& name, std::span<std::int64_t> values) {
  if (!values.empty()) add_own(parts, rank, name, view_of(values));
}

void add_own(ModeParts& parts, int rank, const std::string& prefix,
             std::span<const NamedTensor> tensors) {
  for (const NamedTensor& named : tensors) add_own(parts, rank, prefix + named.name, named.tensor);
}

void add_shared(ModeParts& parts, int rank, const std::string& name, const TensorView& values) {
  parts.push_back({"mode/" + name, values.shape(), 0, values, rank == 0});
}

void add_running(ModeParts& parts, int rank, GradientSource* source) {
  if (source == nullptr || source->running().empty()) return;
  const TensorView values = view_of(source->running());
  parts.push_back({"buffers/running", values.shape(), 0, values, rank == 0});
}

Result<std::int64_t> ModeCheckpoints::restore(const ModeParts& parts) {
  if (saver_ == nullptr) return 0;
  GW_ASSIGN(const std::int64_t done, saver_->restore(parts));
  next_ = saver_->next(done);
  return done;
}

Status ModeCheckpoints::after(std::int64_t done, const std::function<ModeParts()>& parts) {
  if (!due(done)) return {};
  const bool last = ends();
  next_ = saver_->next(done);
  if (last) interruption_->meet();
  const ModeParts mine = parts();
  GW_TRY(saver_->save(done, mine));
  return last ? interruption_->end(done) : Status();
}

Status meet(Communicator& communicator, Interruption* interruption) {
  if (interruption == nullptr) return {};
  WithWord sent({}, interruption);
  OpOptions how;
  how.algorithm = "canonical";
  how.deadline = deadline_in(kSecondsToMeet);
  GW_ASSIGN(Work work, communicator.all_reduce(view_of(sent.all()), ReduceOp::kSum, how));
  GW_TRY(work.wait());
  sent.arrived();
  return {};
}

Status commit_together(Communicator& communicator, GradientSource* source) {
  if (source == nullptr || source->statistics().empty()) return {};
  // The left fold in rank order that one process makes over its micro-batches.
  GW_ASSIGN(Work work, communicator.all_reduce(
                           view_of(source->statistics()), ReduceOp::kSum,
                           {.algorithm = "canonical", .deadline = std::nullopt, .stream = {}}));
  GW_TRY(work.wait());
  source->commit();
  return {};
}

Status average_running(Communicator& communicator, GradientSource& source, double share) {
  const std::span<float> running = source.running();
  if (running.empty()) return {};
  std::vector<double> values(running.begin(), running.end());
  for (double& value : values) value *= share;
  GW_TRY(average_over_ranks(communicator, values));
  std::ranges::transform(values, running.begin(),
                         [](double value) { return static_cast<float>(value); });
  return {};
}

void mean_of_rows(std::span<const float> rows, std::span<float> running) {
  if (running.empty()) return;
  const std::size_t count = rows.size() / running.size();
  for (std::size_t i = 0; i < running.size(); ++i) {
    double sum = 0;
    for (std::size_t row = 0; row < count; ++row) {
      sum += static_cast<double>(rows[row * running.size() + i]);
    }
    running[i] = static_cast<float>(sum / static_cast<double>(count));
  }
}

Status share_running(Communicator& communicator, GradientSource* source, double seconds) {
  if (source == nullptr || source->running().empty()) return {};
  OpOptions how;
  how.deadline = deadline_in(seconds);
  GW_ASSIGN(Work work, communicator.broadcast(view_of(source->running()), 0, how));
  return work.wait();
}

}  // namespace gradwire
