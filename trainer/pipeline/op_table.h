// Where in its rank's list each operation of a stage and a micro-batch stands.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace gradwire {

// Of a schedule whose micro-batches have one pipe each. 36 bytes for each stage and micro-batch.
class PipelineOpTable {
 public:
  static constexpr std::int32_t kAbsent = -1;

  PipelineOpTable(int stages, int micro_batches)
      : micros_(static_cast<std::size_t>(micro_batches)),
        cells_(static_cast<std::size_t>(stages) * micros_) {
    for (Cell& cell : cells_) cell.fill(kAbsent);
  }

  // An index into the list of the stage's rank, or kAbsent. `op` has a micro-batch.
  std::int32_t& at(const PipelineOp& op) { return at(op.kind, op.stage, op.micro); }
  std::int32_t& at(PipelineOpKind kind, int stage, int micro) {
    return cells_[cell(stage, micro)][static_cast<std::size_t>(kind)];
  }
  std::int32_t at(PipelineOpKind kind, int stage, int micro) const {
    return cells_[cell(stage, micro)][static_cast<std::size_t>(kind)];
  }
  bool has(PipelineOpKind kind, int stage, int micro) const {
    return at(kind, stage, micro) != kAbsent;
  }
  // The kind that hands the gradient of the stage's inputs on: B or I.
  PipelineOpKind input_gradient(int stage, int micro) const {
    return has(PipelineOpKind::kBackward, stage, micro) ? PipelineOpKind::kBackward
                                                        : PipelineOpKind::kBackwardInput;
  }

 private:
  // By kind, of those that have a micro-batch.
  using Cell =
      std::array<std::int32_t, static_cast<std::size_t>(PipelineOpKind::kReceiveBackward) + 1>;

  std::size_t cell(int stage, int micro) const {
    return static_cast<std::size_t>(stage) * micros_ + static_cast<std::size_t>(micro);
  }

  std::size_t micros_;
  std::vector<Cell> cells_;
};

}  // namespace gradwire
