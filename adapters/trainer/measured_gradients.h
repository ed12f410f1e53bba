// How far a compressed average is from the exact one, measured beside the training.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/distributed_strategy.h"
#include "gradwire/buffer.h"
#include "gradwire/communicator.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/model_share.h"
#include "trainer/strategy/strategy.h"

namespace gradwire {

// Of one step and of the whole model; equal on all ranks.
struct GradientErrors {
  double nmse = 0;        // |average - exact average|^2 / |exact average|^2; NaN where that is 0
  double exact_norm = 0;  // of the exact average
  // Root mean square over replicas of the norm of what error feedback keeps, all of its stages.
  // nullopt where nothing is kept, or in a form that is not read here (residuals of one byte).
  std::optional<double> residual_norm;
};

struct MeasuringOptions {
  MemoryArena memory = {};  // of the host, where copies of gradients lie that lie there, too
  // Where this rank holds a part of the model: who holds what, read by create() alone. What several
  // ranks of Scope::kModel hold counts on the first. null: all is here.
  const ModelShare* share = nullptr;
};

// A strategy that averages gradients, whole or each rank its part, which at every `every`-th step
// of the training (the first one, too) also averages a dense copy of the gradients. What training
// computes stays the same to the last bit. Copies lie on the host in fp32, without a loss scale,
// are averaged and compared there: 4 bytes an element, of gradients in 16 bits, or on a device, 8;
// of a device's pinned.
class MeasuredGradients final : public Strategy, public GradientExchange {
 public:
  // It compares whole averages: nothing of a gradient has arrived before all have.
  static Demands demands_of(Demands strategy);
  // All are borrowed for its life. every: at least 1. gradients: f32 or 16 bits, all of one device.
  // kUnsupported where ranks exchange something else than gradients; else errors as
  // Buffer::allocate().
  static Result<std::unique_ptr<MeasuredGradients>> create(DistributedStrategy& strategy,
                                                           Communicator& communicator,
                                                           std::int64_t every,
                                                           std::span<const NamedTensor> gradients,
                                                           const MeasuringOptions& options = {});

  Demands demands() const override { return demands_of(strategy_.demands()); }
  GradientExchange& exchange() override { return *this; }
  ParameterKeeper& keeper() override { return strategy_.keeper(); }
  Consensus& consensus() override { return strategy_.consensus(); }

  Status set_gradient_scale(double scale) override;
  Status before_step(double learning_rate) override;
  void skip_step() override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  Status finish(const Stream& stream) override;
  bool meets() const override { return strategy_.exchange().meets(); }

  // Of a run that goes on from a checkpoint: so many steps are done.
  void continue_from(std::int64_t steps) { step_ = steps; }
  // Of the step that ended last; nullopt where it was not measured, or left out.
  const std::optional<GradientErrors>& errors() const { return errors_; }
  // What measuring has taken so far on this rank, inside on_gradient() and finish() (of gradients
  // on a device without what their copies take it).
  double seconds() const { return seconds_; }
  std::uint64_t bytes_sent() const { return bytes_; }

 private:
  MeasuredGradients(DistributedStrategy& strategy, Communicator& communicator, std::int64_t every)
      : strategy_(strategy), communicator_(communicator), every_(every) {}
  bool measures() const { return step_ % every_ == 0; }
  // Of a gradient in a buffer of all of them.
  std::span<float> part(const Buffer& all, std::size_t index) const;
  // to = from without the scale; enqueued on the stream where `from` is on a device, else done.
  Status copy_to(std::span<float> to, ConstTensorView from, const Stream& stream) const;
  // All averages, where the host reads them; waits for the stream.
  Status fetch_averages(const Stream& stream);
  // What this rank has of the average of a gradient, and where it begins.
  struct Average {
    std::int64_t begin = 0;
    std::span<const float> values;
  };
  Average average(std::size_t index) const;
  Status measure(const Stream& stream);
  Result<double> squared_difference();
  double exact_squares() const;

  DistributedStrategy& strategy_;
  Communicator& communicator_;
  std::int64_t every_;
  std::vector<std::int64_t> offsets_;  // of each gradient in the copy
  std::vector<TensorView> gradients_;
  std::vector<bool> counts_;        // of each gradient: on this rank, not on another of the model
  std::set<std::string> kept_;      // parameters whose residuals count here
  Buffer exact_;                    // this rank's gradients, then their exact average
  std::optional<Buffer> averages_;  // of gradients on a device, or in 16 bits
  double scale_ = 1;                // what gradients of 16 bits bear
  bool counted_ = false;            // finish() has counted the step
  std::int64_t step_ = 0;           // of the training, those that were left out too
  std::optional<GradientErrors> errors_;
  double seconds_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace gradwire
