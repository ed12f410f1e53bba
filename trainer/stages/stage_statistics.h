// Running statistics of the layers of a rank's stages, in the host's memory.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "trainer/model.h"
#include "trainer/step/running_statistics.h"

namespace gradwire {

class StageStatistics final : public RunningStatistics {
 public:
  // The model, the rank's part, is borrowed.
  explicit StageStatistics(const Model<float>& model)
      : model_(model),
        values_(static_cast<std::size_t>(parameter_elems(model.buffers()))),
        sums_(static_cast<std::size_t>(model.statistics_elems())) {
    init_parameters<float>(model.buffers(), 0, values_);
  }

  std::vector<NamedTensor> buffers() override { return named_tensors(model_.buffers(), values_); }
  std::span<float> buffer_values() override { return values_; }
  Status take_statistics() override { return {}; }
  std::span<double> statistics() override { return sums_; }
  void commit() override {
    if (!sums_.empty()) model_.commit(sums_, values_);
    discard_statistics();
  }
  void discard_statistics() override { std::ranges::fill(sums_, 0.0); }

 private:
  const Model<float>& model_;
  std::vector<float> values_;
  std::vector<double> sums_;
};

}  // namespace gradwire
