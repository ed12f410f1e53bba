// Running statistics of the layers of a rank's stages, in the host's memory.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/model.h"
#include "trainer/step/running_statistics.h"

namespace gradwire {

class StageStatistics final : public RunningStatistics {
 public:
  // The model, the rank's part, is borrowed.
  static Result<StageStatistics> create(const Model<float>& model, const MemoryArena& arena) {
    StageStatistics made(model);
    const auto values = static_cast<std::size_t>(parameter_elems(model.buffers()));
    GW_ASSIGN(made.values_, arena.allocate(MemoryClass::kOther, values * sizeof(float)));
    init_parameters<float>(model.buffers(), 0, made.buffer_values());
    return made;
  }

  std::vector<NamedTensor> buffers() override {
    return named_tensors(model_.buffers(), buffer_values());
  }
  std::span<float> buffer_values() override {
    const ByteSpan bytes = values_.bytes();
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
  }
  Status take_statistics() override { return {}; }
  std::span<double> statistics() override { return sums_; }
  void commit() override {
    if (!sums_.empty()) model_.commit(sums_, buffer_values());
    discard_statistics();
  }
  void discard_statistics() override { std::ranges::fill(sums_, 0.0); }

 private:
  explicit StageStatistics(const Model<float>& model)
      : model_(model), sums_(static_cast<std::size_t>(model.statistics_elems())) {}

  const Model<float>& model_;
  Buffer values_;
  std::vector<double> sums_;
};

}  // namespace gradwire
