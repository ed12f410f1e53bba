// A chain of layers with one table of parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "trainer/activations.h"
#include "trainer/layers/block_part.h"
#include "trainer/layers/layer.h"
#include "trainer/layers/parallel/output_loss.h"
#include "trainer/parameters.h"
#include "trainer/spans.h"

namespace gradwire {

// One micro-batch on its way through a model.
template <typename T>
struct ModelPass {
  std::span<const T> params;  // of the whole model
  std::int64_t rows = 0;
  Activations<T>* activations = nullptr;
  PassContext context = {};
  std::span<const T> buffers = {};      // of the whole model; may be empty but for kEvaluate
  std::span<double> statistics = {};    // statistics_elems() sums, added to in kTrain; may be empty
  const OnTrainerSpan* told = nullptr;  // of every layer's work
  LayerKernels<T>* device = nullptr;    // not null: all of it lies there, as LayerPass says
  LayerPeers* peers = nullptr;          // of a model that is shared (shared_by()), those ranks
};

// Immutable once built: it holds shapes, not values, so threads may share it.
template <typename T>
class Model {
 public:
  explicit Model(SampleShape input) : input_(input) {}

  // Appends a layer that reads what the last one wrote. `name` prefixes its parameters:
  // "fc1" gives "fc1.weight".
  void add(std::string name, std::unique_ptr<Layer<T>> layer);
  // A layer without parameters of its own, which computes with one of a layer that was added
  // before, known by its whole name: "embed.token". Its part of the gradient has a place of its
  // own.
  void add_tied(std::string name, std::unique_ptr<Layer<T>> layer, std::string_view parameter);
  void set_loss(Loss loss) { loss_ = loss; }
  // The layers of `ranges`, which ascend, one range behind the other: a rank's stages of a
  // pipeline. Names, and with them how parameters start, are the whole model's; layers, parameters
  // and levels count from 0. A pass goes through one range, whose activations are of that range
  // (activation_sizes()). Layers are shared. A layer that is tied to one that is not among them has
  // the parameter as its own there, under the same name: several parts then hold it, and its
  // gradient is the sum of theirs.
  Model part(std::span<const LayerRange> ranges) const;
  // Of a model whose layers hold parts of their tensors: the ranks that have the others. Passes
  // want them then (ModelPass::peers), and so many.
  void share_with(int ranks) { shared_by_ = ranks; }
  int shared_by() const { return shared_by_; }
  // kInvalidArgument unless `peers`, null where there are none, are as many.
  Status check_peers(const LayerPeers* peers) const;
  // kInvalidArgument names the layer, and both numbers, where micro-batches of `rows` samples are
  // divided among ranks, and not evenly.
  Status check_rows(std::int64_t rows) const;
  // Of a shared model: ranks have parts of a micro-batch's samples, or of its images, somewhere.
  void divide_data() { divides_data_ = true; }
  bool divides_data() const { return divides_data_; }
  // Of its outputs these classes are here, the others on peers.
  void divide_classes(const ClassShare& share) { class_share_ = share; }
  // None: all classes are here.
  const std::optional<ClassShare>& class_share() const { return class_share_; }
  // Whether every layer reads what the one before it gives, on the ranks that share it, and
  // gradients are added up where they are parts (trainer/placement.h). kInvalidArgument names the
  // layer.
  Status check_placement() const;
  // What recompute "selective" weighs a layer by: elements that it keeps inside for kWeighedRows
  // samples, so that what does not grow with them weighs as it will, and products forward.
  struct Weight {
    std::int64_t kept = 0;
    std::int64_t macs = 0;
  };
  static constexpr std::int64_t kWeighedRows = 64;
  Weight weight(std::size_t layer) const;
  // Layers weigh as those of the same names in the whole model: ranks that share it choose alike,
  // whatever the size of their parts. One that is not there keeps what it has inside.
  void weigh_as(const Model& whole);
  // Replaces how parameters start, and whether they are summed: `change` is called for each.
  void set_init(const std::function<void(ParameterInfo&)>& change);

  SampleShape input() const { return input_; }
  SampleShape output() const;
  Loss loss() const { return loss_; }
  const ParameterTable& parameters() const { return table_; }
  const ParameterTable& buffers() const { return buffers_; }
  // What backward() writes.
  GradientTable gradients() const;
  std::int64_t statistics_elems() const { return statistics_; }
  Result<Activations<T>> make_activations(std::int64_t max_rows,
                                          DeltaRoom room = DeltaRoom::kTurns) const;
  // What Activations want to know; `segments` as there. `where` passes compute.
  ActivationSizes activation_sizes(std::int64_t max_rows, std::vector<Segment> segments = {},
                                   MemorySpace where = MemorySpace::kHost) const;
  // Likewise of passes through layers `range` alone: other levels have no elements.
  ActivationSizes activation_sizes(LayerRange range, std::int64_t max_rows,
                                   std::vector<Segment> segments = {},
                                   MemorySpace where = MemorySpace::kHost) const;

  std::size_t layers() const { return stages_.size(); }
  LayerRange all() const { return {0, stages_.size()}; }
  const std::string& layer_name(std::size_t layer) const { return stages_[layer].name; }
  const Layer<T>& layer(std::size_t layer) const { return *stages_[layer].layer; }
  // Parameters [first, second) are of this layer.
  std::pair<int, int> parameters_of(std::size_t layer) const {
    return {stages_[layer].first_parameter, stages_[layer].end_parameter};
  }
  // Those that it computes with, of which one is another layer's where it is tied.
  std::pair<int, int> parameters_read_by(std::size_t layer) const {
    const Stage& stage = stages_[layer];
    if (stage.tied < 0) return parameters_of(layer);
    return {stage.tied, stage.tied + 1};
  }
  // The parameter of another layer that it is tied to; -1: it is not.
  int tied_to(std::size_t layer) const { return stages_[layer].tied; }
  // The layer that the way back ends with: nobody reads what a lower one would compute. A part
  // that does not begin with the data goes back through all of its layers.
  std::size_t last_of_backward() const;
  // Whether somebody reads the derivative by the layer's input.
  bool derives_input(std::size_t layer) const { return !reads_data_ || layer > last_of_backward(); }

  // Reads activations.values(0), fills the values of all levels; returns the logits
  // (rows, classes). Of a shared model the caller asks pass.peers for their status.
  std::span<const T> forward(const ModelPass<T>& pass) const;
  // Reads values(range.begin), fills those up to values(range.end).
  void forward(const ModelPass<T>& pass, LayerRange range) const;

  // Called when gradient `index` of gradients() is complete in `grads`.
  using Ready = std::function<Status(int index)>;
  // After forward() on the same rows: activations.deltas() of the last level hold the derivative by
  // the logits. Overwrites `grads`, which are as gradients() says. `ready` is called for each as
  // soon as it is complete: for the parameters from the last to the first, for a use of one before
  // it. Its error ends the call.
  Status backward(const ModelPass<T>& pass, std::span<T> grads, const Ready& ready) const;
  // One layer's part of it; layers come from the last to last_of_backward().
  Status backward(const ModelPass<T>& pass, std::size_t layer, std::span<T> grads,
                  const Ready& ready) const;

  // The two halves of backward(), for activations with room for every delta: first the derivatives
  // by the inputs of layers [begin, end), from deltas(end) to deltas(begin), then, at any time
  // after it, the gradients of their parameters. The same bits as backward().
  void backward_input(const ModelPass<T>& pass, LayerRange range) const;
  Status backward_params(const ModelPass<T>& pass, LayerRange range, std::span<T> grads,
                         const Ready& ready) const;

  // New buffers from the sums of all micro-batches of a step, on all ranks.
  void commit(std::span<const double> statistics, std::span<T> buffers) const;

  // The level of the logits: activations.deltas(last_level(), rows) is backward's input.
  std::size_t last_level() const { return stages_.size(); }

 private:
  struct Part {  // of a flat array
    std::int64_t offset = 0;
    std::int64_t elems = 0;
    template <typename E>
    std::span<E> of(std::span<E> all) const {
      return part_of(all, offset, elems);
    }
  };
  struct Stage {
    std::string name;
    std::shared_ptr<const Layer<T>> layer;
    std::int64_t input = 0;   // elements of a sample
    int first_parameter = 0;  // its parameters are [first_parameter, end_parameter)
    int end_parameter = 0;
    int tied = -1;  // the parameter of another layer that it reads; -1: it has its own
    Part params;    // those it reads
    // Where it is tied: elements of uses before its own.
    std::int64_t uses_before = 0;
    Part buffers;
    Part statistics;
    std::optional<Weight> weight = {};  // none: its own
    bool own_input = false;  // each rank has a part of the samples (SampleRows), of x, of y
    bool own_output = false;
  };
  // Of a micro-batch of `rows` samples, those that level `level` has here.
  std::int64_t level_rows(std::size_t level, std::int64_t rows) const;
  LayerPass<T> layer_pass(const ModelPass<T>& pass, std::size_t level) const;
  Status derive_params(const ModelPass<T>& pass, std::size_t level, std::span<T> grads,
                       const Ready& ready) const;
  // Where the gradients of a layer's parameters are in `grads`.
  std::span<T> gradients_of(const Stage& stage, std::span<T> grads) const;
  Status tell_ready(std::size_t level, const Ready& ready) const;
  Status backward_among_peers(const ModelPass<T>& pass, std::size_t layer, std::span<T> grads,
                              const Ready& ready) const;

  void append(std::string name, std::shared_ptr<const Layer<T>> layer, std::int64_t input);
  void append_to(int parameter, std::string name, std::shared_ptr<const Layer<T>> layer,
                 std::int64_t input);
  void append_part(const Model& whole, std::size_t layer);

  SampleShape input_;
  bool reads_data_ = true;  // its first layer's input is
  std::vector<Stage> stages_;
  ParameterTable table_;
  ParameterTable buffers_;
  std::vector<int> uses_;  // parameters that tied layers read, in their order
  std::int64_t statistics_ = 0;
  Loss loss_ = Loss::kCrossEntropy;
  int shared_by_ = 1;
  bool divides_data_ = false;
  std::optional<ClassShare> class_share_;
};

}  // namespace gradwire
