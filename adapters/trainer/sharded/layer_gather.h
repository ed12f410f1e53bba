// Sharded parameters, gathered for the layer that computes with them and given back after it.
//
//   forward, for each layer   all-gather its tensors from their owners' shards; compute; give back
//   back, likewise            once more, from the last layer to the first
//
// While a layer computes, the next one's tensors travel: at most two layers are whole at a time, or
// one segment and a layer where layers are computed again. A pass sends (N - 1)/N of the parameters
// from every rank, so a step with its reduced gradients sends 3 (N - 1)/N times the model.
// Source: Rajbhandari, Rasley, Ruwase, He, "ZeRO", SC 2020, sections 5.3 and 7.2.2.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "gradwire/aggregator.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"
#include "trainer/layer_gate.h"
#include "trainer/memory/trainer_memory.h"

namespace gradwire {

class LayerGather final : public LayerGate {
 public:
  // Writes this rank's part of tensor `index` to its place in the whole; on a device it enqueues
  // that on the arena's stream.
  using Prepare = std::function<Status(int index)>;
  // Collective; communicator and memory are lent for its life. `options`: compressor and the like;
  // form, traffic and buckets are its own (a tensor travels alone, in place). The compressor keeps
  // nothing between steps.
  static Result<std::unique_ptr<LayerGather>> create(Communicator& communicator,
                                                     const Registry& registry,
                                                     AggregatorOptions options,
                                                     const TrainerMemory& memory, Prepare prepare);

  Status open(std::size_t layer, Way way) override;
  Status close(std::size_t layer, Way way) override;
  // Collective, between passes: every tensor whole on all ranks, until the next pass.
  Status gather_all();
  // Whether they are.
  bool whole() const { return whole_; }
  // Collective, between passes: visit(index) for every tensor, in some order, while it is whole.
  Status visit(const std::function<Status(int index)>& visit);

  AggregateStats stats() const;
  std::vector<std::string> warnings() const { return forward_.gather->warnings(); }

 private:
  // The passes of one way.
  struct Lane {
    std::vector<LayerTensors> openings;
    std::vector<int> entry;  // of each opening, its first tensor's number in the order of travel
    int entries = 0;
    std::unique_ptr<Aggregator> gather;
    std::size_t next = 0;   // to open
    std::size_t asked = 0;  // openings whose tensors are on their way, or there
    std::size_t closed = 0;
  };
  LayerGather(const TrainerMemory& memory, Prepare prepare);
  Result<Lane> make_lane(Communicator& communicator, const Registry& registry,
                         const AggregatorOptions& options, std::vector<LayerTensors> openings);
  Stream stream() const { return memory_.places.device.stream(); }
  Lane& lane(Way way) { return way == Way::kForward ? forward_ : back_; }
  Status ask(Lane& lane);
  Status await(Lane& lane, std::size_t opening);
  Status end_pass(Lane& lane);

  TrainerMemory memory_;
  Prepare prepare_;
  std::vector<int> users_;  // by tensor: openings that hold it
  Lane forward_;
  Lane back_;
  bool whole_ = false;
  double waited_seconds_ = 0;
};

}  // namespace gradwire
