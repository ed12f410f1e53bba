// What the operations of one rank's list do with real layers: F, B, I and W of its stages, UNSHARD
// and RESHARD of their parameters, STASH and DROP of versions of these, the messages between them,
// and RT, which adds up gradients of parameters that two ranks hold.
//
// A message is a micro-batch's activations or their derivative, (rows, width) in fp32, always with
// room for all rows. Between stages of one rank it is handed over in place.
//
// On a device all of it is enqueued on the arena's stream, in the order of the list, so that
// nothing waits for another and the host waits in settle() alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "trainer/data/data_set.h"
#include "trainer/device_batch.h"
#include "trainer/judgement.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/model.h"
#include "trainer/pipeline/run/work.h"
#include "trainer/stages/message_pool.h"
#include "trainer/stages/pipeline_stage.h"
#include "trainer/stages/stage_plan.h"
#include "trainer/step/gradient_fold.h"
#include "trainer/step/micro_batches.h"
#include "trainer/step/peer_sums.h"

namespace gradwire {

// What the layers of a rank read and move beside parameters.
struct StageValues {
  std::span<const float> params = {};
  std::span<const float> buffers = {};
  std::span<double> statistics = {};
};

// Adds to `sum` what the other rank that holds the parameter has of its gradient, and the other way
// round: both end with the same bits. Called by both in the same order; waits.
using TiedSum = std::function<Status(const TensorView& sum)>;

// From the thread that executes.
class StageWork final : public PipelineWork {
 public:
  struct Options {
    std::int64_t max_rows = 1;  // samples of a micro-batch
    std::string recompute = "none";
    MemoryArena memory = {};
    // On a device, of the rank's part: with room for all micro-batches.
    // Borrowed. Its buffers and statistics are used instead of StageValues'.
    DeviceBatch* there = nullptr;
    LayerPeers* peers = nullptr;  // of a shared model
    TiedSum tied_sum = {};        // where StagePlan::shared has parameters
  };
  // All are borrowed; `model`: the rank's part. Errors as PipelineStage::create().
  static Result<std::unique_ptr<StageWork>> create(const Model<float>& model, const DataSet& data,
                                                   const StagePlan& plan, const Options& options);

  // What a step works on, borrowed until the next one.
  struct Step {
    StageValues values = {};
    std::span<const MicroBatch> batches = {};  // by micro-batch
    GradientFold* fold = nullptr;
    // Parameter `index` has all of its micro-batches' gradients, of all ranks: in any order.
    std::function<Status(int index)> done = {};
    LayerGate* gate = nullptr;  // null: parameters are there
    int newest = 0;             // the version of `values`
    // By micro-batch, where several steps are under way, in place of StageValues::statistics.
    std::span<std::vector<double>> seen = {};
    const OnTrainerSpan* told = nullptr;
  };
  void begin_step(const Step& step);
  // Of the step, once it is settled: the mean of the losses of the pipe whose last stage is here,
  // else 0.
  double mean_loss() const;

  // Samples of the evaluation, by micro-batch; what is behind them is empty. Forwards alone follow.
  void begin_evaluation(const StageValues& values,
                        std::span<const std::span<const std::uint32_t>> samples, LayerGate* gate);
  // Behind all micro-batches of a step, where its gradients were not handed over one by one.
  Status add_whole_sums() { return sums_.add_whole(*step_.fold); }
  // After all operations of a step or an evaluation: what a device found in them is known. Waits
  // for it; an error of anything that was enqueued is this call's.
  Status settle();
  // Of the evaluation's samples where the last stage is, once it is settled.
  const Judgement& judgement() const { return judgement_; }
  // Forgets what is under way.
  void stop();

  Status run(const PipelineOp& op) override;
  Status finish(const PipelineOp&) override { return {}; }
  Result<std::span<std::byte>> room_for(const PipelineOp& receive) override;
  Result<std::span<const std::byte>> message(const PipelineOp& send) override;
  void sent(const PipelineOp& send) override;

 private:
  // A stage of the rank, and what leaves and enters it: pools of the boundaries.
  struct Held {
    PipelineStage stage;
    int number = 0;
    bool is_first = false;
    bool is_last = false;
    bool next_here = false;    // the next stage is this rank's
    bool before_here = false;  // the one before is
    MessagePool activations_in = {};
    MessagePool activations_out = {};
    MessagePool gradients_in = {};
    MessagePool gradients_out = {};
  };
  // Of both pipes' micro-batches of one number, where there are two.
  struct Sum {
    std::span<float> grads = {};
    std::size_t stages_left = 0;  // without their gradients
  };
  struct Micro {
    double loss = 0;
    std::int64_t judged = 0;  // labels, on a device
  };

  StageWork(const Model<float>& model, const DataSet& data, const Options& options)
      : model_(model),
        data_(data),
        memory_(options.memory),
        there_(options.there),
        peers_(options.peers),
        sums_(model.parameters(), options.peers),
        tied_sum_(options.tied_sum) {}
  Result<Held*> held(int stage);
  Result<std::span<float>> taken(const PipelineOp& op);
  // Who brings parameters layer by layer; null: they are there.
  LayerGate* layer_gate() const { return gathers_ ? nullptr : step_.gate; }
  Status gather(const Held& held, bool opens);
  Result<std::span<const float>> version(int number) const;
  // Copies are there.
  LayerGate* gate_of(int version) const;
  Status stash(const Held& held, int number);
  Status drop(int number);
  ModelPass<float> pass_of(int micro) const;
  Status read_samples(int micro, std::span<float> input);
  std::span<const std::uint32_t> read_labels(int micro);
  Status forward(Held& held, const PipelineOp& op);
  Status judge(Held& held, int micro);
  Status derive_loss(Held& held, int micro);
  Status take_gradient(Held& held, int micro);
  Status hand_gradient(Held& held, int micro);
  Status add_gradients(Held& held, const PipelineOp& op);
  Status add_tied();
  bool is_shared(int parameter) const;
  std::span<const std::uint32_t> samples_of(int micro) const;
  std::int64_t rows_of(int micro) const;

  const Model<float>& model_;
  const DataSet& data_;
  MemoryArena memory_;
  DeviceBatch* there_;    // null on the host
  bool gathers_ = false;  // stages' parameters, all of a stage at a time
  LayerPeers* peers_;
  PeerSums sums_;
  OutputLoss<float> output_loss_;
  TiedSum tied_sum_;
  std::vector<int> shared_;  // parameters that another rank holds, too
  std::vector<std::unique_ptr<Held>> held_;
  std::vector<float> inputs_;  // of samples whose labels alone are wanted
  std::vector<std::uint32_t> labels_;
  bool evaluates_ = false;
  Step step_;
  std::span<const std::span<const std::uint32_t>> evaluated_;
  // A version of the weights beside the newest.
  struct Copy {
    Buffer memory;
    int number = -1;  // -1: of none
    std::span<float> values() const {
      const ByteSpan bytes = memory.bytes();
      return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
    }
  };
  std::vector<Copy> copies_;
  std::vector<Micro> micros_;
  std::vector<Sum> adding_;  // by a micro-batch's number in its pipe
  Judgement judgement_;
};

}  // namespace gradwire
