// Running statistics of the layers of a rank's stages: values in the host's memory, sums where
// passes compute.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/device_batch.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/model.h"
#include "trainer/step/running_statistics.h"

namespace gradwire {

class StageStatistics final : public RunningStatistics {
 public:
  // The model, the rank's part, is borrowed, and so is `there`, where passes compute on a device:
  // the arena is that one's.
  static Result<StageStatistics> create(const Model<float>& model, const MemoryArena& arena,
                                        DeviceBatch* there = nullptr) {
    StageStatistics made(model, there);
    const auto values = static_cast<std::size_t>(parameter_elems(model.buffers()));
    const std::size_t bytes = values * sizeof(float);
    GW_ASSIGN(made.values_, there == nullptr ? arena.allocate(MemoryClass::kOther, bytes)
                                             : Buffer::allocate(bytes));
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
  Status take_statistics() override {
    return there_ == nullptr ? Status() : there_->take_statistics(sums_);
  }
  std::span<double> statistics() override { return sums_; }
  void commit() override {
    if (!sums_.empty()) model_.commit(sums_, buffer_values());
    discard_statistics();
  }
  void discard_statistics() override {
    std::ranges::fill(sums_, 0.0);
    if (there_ != nullptr && !sums_.empty()) there_->clear_statistics();
  }
  // Passes that evaluate read the values from now on. Waits for a device.
  Status use_values() {
    return there_ == nullptr ? Status() : there_->set_buffers(buffer_values());
  }

 private:
  StageStatistics(const Model<float>& model, DeviceBatch* there)
      : model_(model), there_(there), sums_(static_cast<std::size_t>(model.statistics_elems())) {}

  const Model<float>& model_;
  DeviceBatch* there_;
  Buffer values_;
  std::vector<double> sums_;
};

}  // namespace gradwire
