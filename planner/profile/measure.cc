#include "planner/profile/measure.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/elements.h"
#include "base/text.h"
#include "device/ops.h"
#include "device/pages.h"
#include "trainer/batch_pass.h"
#include "trainer/data/order.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/optimizers/optimizer.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

Status check_at_least_one(const char* what, std::int64_t value) {
  if (value >= 1) return {};
  return {Code::kInvalidArgument,
          format("profile: %s=%lld (expected 1 or more)", what, static_cast<long long>(value))};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

Result<Buffer> held_elements(std::int64_t count) {
  return MemoryArena().allocate(MemoryClass::kOther,
                                static_cast<std::size_t>(count) * sizeof(float));
}
std::span<float> elements_of(Buffer& buffer) {
  const ByteSpan bytes = buffer.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

constexpr double kLearningRate = 1e-3;

// What a pass does besides its layers.
constexpr const char* kBesides = "loss";

// Seconds of a layer in each pass.
struct LayerRounds {
  std::vector<double> forward;
  std::vector<double> backward;
};

// Adds up what a pass tells of each layer.
class PassTimes {
 public:
  void hear(const TrainerSpan& span) {
    using Kind = TrainerSpan::Kind;
    const double seconds = seconds_between(span.begin, span.end);
    const std::string layer(span.layer);
    if (span.kind == Kind::kForward) forward_[layer] += seconds;
    if (span.kind == Kind::kLoad || span.kind == Kind::kLoss) forward_[kBesides] += seconds;
    if (span.kind == Kind::kBackwardInput || span.kind == Kind::kBackwardParams) {
      backward_[layer] += seconds;
    }
  }
  void end_round(std::map<std::string, LayerRounds>& rounds) {
    for (const auto& [layer, seconds] : forward_) rounds[layer].forward.push_back(seconds);
    for (const auto& [layer, seconds] : backward_) rounds[layer].backward.push_back(seconds);
    clear();
  }
  void clear() {
    forward_.clear();
    backward_.clear();
  }

 private:
  std::map<std::string, double> forward_;
  std::map<std::string, double> backward_;
};

}  // namespace

ProfiledLayer profiled_shape(const Model<float>& model, std::size_t layer) {
  const LayerCost cost = model.layer(layer).cost();
  ProfiledLayer shape;
  shape.input = layer == 0 ? model.input() : model.layer(layer - 1).output();
  shape.output = model.layer(layer).output();
  const auto [first, end] = model.parameters_of(layer);
  for (int parameter = first; parameter < end; ++parameter) {
    shape.parameters += model.parameters()[static_cast<std::size_t>(parameter)].shape.elems();
  }
  shape.forward_macs = cost.forward_macs;
  shape.backward_macs = (model.derives_input(layer) ? cost.input_macs : 0) + cost.weight_macs;
  return shape;
}

ProfiledLayer profiled_loss(const SampleShape& output) {
  ProfiledLayer shape;
  shape.input = output;
  return shape;
}

Result<std::vector<ProfiledLayer>> measure_layers(const Model<float>& model, const DataSet& data,
                                                  const std::string& label, std::int64_t rows,
                                                  int rounds) {
  GW_TRY(check_at_least_one("rows", rows));
  GW_TRY(check_at_least_one("rounds", rounds));
  if (rows > data.train().count()) {
    return Status(Code::kInvalidArgument,
                  format("profile: micro-batches of %lld samples of %s (expected at most %lld)",
                         static_cast<long long>(rows), data.name().c_str(),
                         static_cast<long long>(data.train().count())));
  }
  GW_ASSIGN(BatchPass pass, BatchPass::create(model, data, rows));
  // Where training has them: how tensors lie to one another decides what a cache can keep.
  GW_ASSIGN(Buffer held_params, held_elements(parameter_elems(model.parameters())));
  GW_ASSIGN(Buffer held_grads, held_elements(model.gradients().elems()));
  const std::span<float> params = elements_of(held_params);
  const std::span<float> grads = elements_of(held_grads);
  init_parameters<float>(model.parameters(), 1, params);
  // Other samples in each pass, and other parameters, as in training: a processor that has seen a
  // pass before foresees its branches.
  DataOrder order(rows, 1, Shuffle::kUniform, data.train().count());
  GW_ASSIGN(const auto optimizer,
            make_optimizer({.name = "sgd"}, whole_slices(model.parameters())));
  PassTimes times;
  const OnTrainerSpan told = [&times](const TrainerSpan& span) { times.hear(span); };
  pass.tell(&told);
  std::map<std::string, LayerRounds> all;
  for (int round = -1; round < rounds; ++round) {
    const auto samples = order.epoch(round + 1);
    GW_TRY(pass.run(params, {.samples = samples}, grads, [](int) { return Status(); }).error());
    if (round >= 0) times.end_round(all);
    times.clear();
    GW_TRY(optimizer->step(params, grads, kLearningRate));
  }
  std::vector<ProfiledLayer> layers;
  const auto add = [&](const ProfiledLayer& shape, const std::string& name) {
    ProfiledLayer& one = layers.emplace_back(shape);
    const LayerRounds& found = all[name];
    one.name = label + " " + name;
    one.rows = rows;
    one.forward_seconds = median(found.forward);
    one.backward_seconds = median(found.backward);
  };
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    add(profiled_shape(model, layer), model.layer_name(layer));
  }
  add(profiled_loss(model.output()), kBesides);
  return layers;
}

Result<ProfiledOptimizer> measure_optimizer(const std::string& name, std::int64_t elements,
                                            int rounds) {
  GW_TRY(check_at_least_one("elements", elements));
  GW_TRY(check_at_least_one("rounds", rounds));
  const SliceTable slices{{.name = "tensor", .elems = elements}};
  GW_ASSIGN(const auto optimizer, make_optimizer({.name = name}, slices));
  std::vector<float> parameters(static_cast<std::size_t>(elements), 0.5F);
  const std::vector<float> gradients(parameters.size(), 0.25F);
  std::vector<double> seconds;
  for (int round = -1; round < rounds; ++round) {
    const Clock::time_point begin = Clock::now();
    GW_TRY(optimizer->step(parameters, gradients, 1e-3));
    if (round >= 0) seconds.push_back(seconds_between(begin, Clock::now()));
  }
  return ProfiledOptimizer{.name = name, .elements = elements, .seconds = median(seconds)};
}

Result<ProfiledSum> measure_sum(std::int64_t elements, int rounds) {
  GW_TRY(check_at_least_one("elements", elements));
  GW_TRY(check_at_least_one("rounds", rounds));
  std::vector<float> sum(static_cast<std::size_t>(elements), 0.5F);
  std::vector<float> own(sum.size());
  std::vector<double> seconds;
  for (int round = -1; round < rounds; ++round) {
    std::ranges::fill(own, 0.25F);  // as backward does
    const Clock::time_point begin = Clock::now();
    GW_TRY(reduce(ReduceOp::kSum, view_of(std::span<float>(own)), view_of(std::span<float>(sum)),
                  Stream{}));
    (void)offer_pages(view_of(std::span<float>(own)).bytes());
    if (round >= 0) seconds.push_back(seconds_between(begin, Clock::now()));
  }
  return ProfiledSum{.elements = elements, .seconds = median(seconds)};
}

}  // namespace gradwire
