// The public face: registration, then an Engine over the buckets that registration gave.
#include "gradwire/aggregator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "aggregate/engine.h"
#include "aggregate/exchange.h"
#include "aggregate/narrow/wide_buffers.h"
#include "aggregate/plan/node_groups.h"
#include "aggregate/plan/plan.h"
#include "aggregate/state/reshard.h"
#include "aggregate/state/reshard_outer.h"
#include "base/forks.h"
#include "base/hash.h"
#include "base/text.h"

namespace gradwire {
namespace {

std::string text_of(Device device) {
  return device.space == MemorySpace::kCuda ? format("CUDA device %d", device.ordinal) : "the host";
}

Status check_gradient(const std::string& name, const TensorView& grad) {
  const DType dtype = grad.dtype();
  if (dtype == DType::kF32 || dtype == DType::kF64 || is_narrow(dtype)) return {};
  return {Code::kInvalidArgument,
          "aggregator: gradient '" + name + "' is of " + std::string(to_string(dtype)) + " on " +
              text_of(grad.device()) + " (expected f32 or f64, f16 or bf16)"};
}

class BucketAggregator final : public Aggregator, private ParameterSizes {
 public:
  BucketAggregator(std::unique_ptr<Communicator> communicator, std::unique_ptr<NodeGroups> nodes,
                   AggregatorOptions options, Plan plan)
      : options_(std::move(options)),
        plan_(std::move(plan)),
        communicator_(std::move(communicator)),
        nodes_(std::move(nodes)),
        workers_(options_.threads),
        context_{*communicator_,
                 options_.algorithm,
                 &workers_,
                 options_.form,
                 nodes_.get(),
                 options_.lean,
                 options_.bucket_bytes,
                 nullptr,
                 0,
                 std::make_shared<WideBuffers>()} {}
  // In a child of fork() its thread is the parent's.
  ~BucketAggregator() override {
    if (mark_.in_child()) abandon(engine_);
  }
  BucketAggregator(const BucketAggregator&) = delete;
  BucketAggregator& operator=(const BucketAggregator&) = delete;

  Status add(std::string name, TensorView grad) override {
    if (engine_ != nullptr) {
      return {Code::kInvalidArgument,
              "aggregator: parameter '" + name + "' comes after the first ready(); add all before"};
    }
    GW_TRY(check_gradient(name, grad));
    for (const Parameter& known : parameters_) {
      if (known.name == name) {
        return {Code::kInvalidArgument, "aggregator: parameter '" + name + "' was added already"};
      }
    }
    GW_ASSIGN(Parameter parameter, plan_parameter(plan_, options_, std::move(name), grad));
    GW_TRY(place(parameter));
    parameters_.push_back(std::move(parameter));
    return {};
  }

  Status ready(int index, const Stream& stream) override {
    GW_TRY(start());
    if (context_.lane == nullptr) return engine_->ready(index);
    GW_TRY(engine_->check_open(index));
    const Parameter& parameter = parameters_[static_cast<std::size_t>(index)];
    const Device device = parameter.grad.device();
    const bool there = stream.device.space == MemorySpace::kCuda;
    if (there && stream.device != device) {
      return {Code::kInvalidArgument, "aggregator: gradient '" + parameter.name +
                                          "' is ready on a stream of " + text_of(stream.device) +
                                          " (expected " + text_of(device) + ")"};
    }
    GW_TRY(parameter.ready->record(there ? stream : Stream{device, nullptr}));
    return engine_->ready(index);
  }

  Status move(int index, TensorView grad) override {
    GW_TRY(start());
    GW_TRY(engine_->check_open(index));
    Parameter& parameter = parameters_[static_cast<std::size_t>(index)];
    GW_TRY(check_gradient(parameter.name, grad));
    if (grad.device() != parameter.grad.device()) return elsewhere(parameter.name, grad);
    if (grad.shape() != parameter.grad.shape() || grad.dtype() != parameter.grad.dtype()) {
      return {Code::kInvalidArgument, "aggregator: gradient '" + parameter.name + "' moves to " +
                                          std::string(to_string(grad.dtype())) +
                                          to_string(grad.shape()) + " (expected " +
                                          std::string(to_string(parameter.grad.dtype())) +
                                          to_string(parameter.grad.shape()) + ")"};
    }
    parameter.grad = grad;
    return {};
  }

  Status finish(const Stream&) override {
    if (parameters_.empty()) return {};
    GW_TRY(start());
    return engine_->finish();
  }

  Result<bool> arrived(int index, bool wait) override {
    GW_TRY(start());
    return engine_->arrived(index, wait);
  }

  Status set_learning_rate(double rate) override {
    return follow(ScaleKind::kLearningRate, "learning rate", rate, rate >= 0);
  }
  Status set_loss_scale(double scale) override {
    return follow(ScaleKind::kLossScale, "loss scale", scale, scale > 0);
  }
  Status set_narrow_scale(double scale) override {
    GW_TRY(between_steps("set_narrow_scale()"));
    if (!(scale > 0) || !std::isfinite(scale)) {
      return {Code::kInvalidArgument,
              format("aggregator: narrow scale %g (expected a finite number above 0)", scale)};
    }
    context_.wide->set_scale(scale);
    return {};
  }
  Result<bool> skip_step(bool overflow) override {
    GW_TRY(between_steps("skip_step()"));
    GW_ASSIGN(const float any, engine_->largest(overflow ? 1.0F : 0.0F));
    return any > 0;
  }

  AggregateStats stats() const override {
    return engine_ == nullptr ? AggregateStats() : engine_->stats();
  }

  std::vector<std::string> warnings() const override {
    std::vector<std::string> all = plan_.warnings;
    if (engine_ == nullptr) return all;
    for (std::string& notice : engine_->notices()) all.push_back(std::move(notice));
    return all;
  }

  std::vector<NamedTensor> state() override {
    if (parameters_.empty() || !start().ok() || !engine_->between_steps()) return {};
    return engine_->state();
  }

  Status load_state(std::span<const std::vector<NamedTensor>> by_old_rank) override {
    GW_TRY(between_steps("load_state()"));
    GW_TRY(check_levels(by_old_rank));
    return engine_->change_state([&](std::span<const NamedTensor> own) {
      return reshard_state(own, by_old_rank, communicator_->rank(), communicator_->size(), *this);
    });
  }

 private:
  Status elsewhere(const std::string& name, const TensorView& grad) const {
    return {Code::kInvalidArgument, "aggregator: gradient '" + name + "' is on " +
                                        text_of(grad.device()) + " (expected " +
                                        text_of(context_.stream().device) + ", as the others)"};
  }

  // All gradients are of one place, as the first one.
  Status place(Parameter& parameter) {
    const Device device = parameter.grad.device();
    const bool there = device.space == MemorySpace::kCuda;
    if (!parameters_.empty() && there != (context_.lane != nullptr)) {
      return elsewhere(parameter.name, parameter.grad);
    }
    if (!there) return {};
    if (context_.lane == nullptr) {
      GW_ASSIGN(std::unique_ptr<CopyLane> lane, CopyLane::create(device));
      GW_ASSIGN(parameter.ready, lane->make_point());
      context_.lane = std::move(lane);
      context_.lane_seconds = communicator_->deadline_seconds();
      context_.workers = nullptr;  // kernels have threads of their own
      return {};
    }
    if (context_.stream().device != device) return elsewhere(parameter.name, parameter.grad);
    GW_ASSIGN(parameter.ready, context_.lane->make_point());
    return {};
  }

  // Starts where nothing has started yet.
  Status between_steps(const char* call) {
    GW_TRY(start());
    if (engine_->between_steps()) return {};
    return {Code::kInvalidArgument,
            std::string("aggregator: ") + call + " in the middle of a step; call finish() first"};
  }

  Status follow(ScaleKind kind, const char* what, double value, bool in_range) {
    if (!in_range || !std::isfinite(value)) {
      return {Code::kInvalidArgument,
              format("aggregator: a %s of %g (expected a finite number %s)", what, value,
                     kind == ScaleKind::kLossScale ? "above 0" : "of 0 or more")};
    }
    if (options_.form == AggregateForm::kAllGather) {
      return {Code::kInvalidArgument, std::string("aggregator: a ") + what +
                                          " for the form kAllGather, whose tensors are no "
                                          "gradients; tell the aggregator of the gradients alone"};
    }
    GW_TRY(between_steps(what));
    return engine_->follow(kind, value);
  }

  // What was left over between nodes has nowhere to go where there is nothing between them.
  Status check_levels(std::span<const std::vector<NamedTensor>> by_old_rank) const {
    if (nodes_ != nullptr && nodes_->nodes > 1) return {};
    for (const std::vector<NamedTensor>& entries : by_old_rank) {
      for (const NamedTensor& entry : entries) {
        if (!is_outer_state(entry.name)) continue;
        return {Code::kInvalidArgument, "state '" + entry.name +
                                            "' belongs to the level between nodes, which this "
                                            "aggregator lacks (it has one node, or no "
                                            "intra_node= in its rules)"};
      }
    }
    return {};
  }

  // Ends registration: buckets, coders and the thread come to be.
  Status start() {
    if (mark_.in_child()) {
      return {Code::kUnsupported, "a forked child has none of its parent's aggregators"};
    }
    if (engine_ != nullptr) return {};
    if (parameters_.empty()) {
      return {Code::kInvalidArgument, "aggregator: no parameter was added"};
    }
    std::vector<Bucket> buckets;
    for (BucketPlan& plan : plan_buckets(parameters_, options_.bucket_bytes, communicator_->size(),
                                         nodes_ == nullptr ? 1 : nodes_->nodes)) {
      Members members;
      for (const int index : plan.parameters) {
        members.push_back(&parameters_[static_cast<std::size_t>(index)]);
      }
      Bucket bucket;
      if (plan.warmup_steps > 0) {
        GW_ASSIGN(bucket.warmup, make_exchanges(context_, Path::kDense, members));
      }
      GW_ASSIGN(bucket.exchanges, make_exchanges(context_, plan.path, std::move(members)));
      bucket.plan = std::move(plan);
      buckets.push_back(std::move(bucket));
    }
    engine_ = std::make_unique<Engine>(context_, options_, std::move(buckets), parameters_,
                                       fingerprint());
    return {};
  }

  // Whatever must be equal on all ranks for their exchanges to fit together.
  std::uint64_t fingerprint() const {
    std::string text =
        std::string(to_string(options_.traffic)) + "\n" + options_.compressor + "\n" +
        options_.algorithm +
        format("\n%lld\n%llu\n%d\n", static_cast<long long>(options_.bucket_bytes),
               static_cast<unsigned long long>(options_.seed), static_cast<int>(options_.form));
    for (const Parameter& parameter : parameters_) {
      text += parameter.name + to_string(parameter.grad.shape()) +
              std::string(to_string(parameter.grad.dtype())) +
              (parameter.grad.device().space == MemorySpace::kCuda ? " on a device\n" : "\n");
    }
    return hash_name(text);
  }

  std::int64_t elems_of(std::string_view name) const override {
    for (const Parameter& parameter : parameters_) {
      if (parameter.name == name) return parameter.grad.elems();
    }
    return 0;
  }

  AggregatorOptions options_;
  Plan plan_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<NodeGroups> nodes_;  // null unless a rule has two levels
  Workers workers_;                    // lent to coders and wire formats
  ExchangeContext context_;
  std::vector<Parameter> parameters_;  // fixed once engine_ is there
  ForkMark mark_;
  std::unique_ptr<Engine> engine_;  // last: its thread uses all of the above
};

}  // namespace

int phases_of(Path path, const Members& members) {
  if (path == Path::kDense) return 1;
  if (path == Path::kSra) return 2;
  if (path == Path::kOkTopk) return kOkTopkPhases;
  int most = 0;
  for (const Parameter* member : members) {
    most = std::max(most, member->compressor->traits().rounds);
  }
  return most;
}

namespace {

Result<Exchanges> alone(Result<std::unique_ptr<BucketExchange>> made) {
  if (!made.has_value()) return made.error();
  Exchanges one;
  one.push_back(std::move(made).value());
  return one;
}

}  // namespace

Result<Exchanges> make_exchanges(const ExchangeContext& context, Path path, Members members) {
  const Parameter& any = *members.front();
  const bool as_it_is = path == Path::kDense && any.inner == nullptr;
  if (is_narrow(any.grad.dtype()) && !as_it_is) {
    return alone(make_widened_exchange(context, path, members));
  }
  if (context.form != AggregateForm::kAllReduce) {
    return alone(path == Path::kDense ? make_dense_shards(context, std::move(members))
                                      : make_packed_shards(context, members));
  }
  if (any.inner != nullptr && (path != Path::kDense || any.dense_levels)) {
    return alone(make_two_level_exchange(context, path, members));
  }
  switch (path) {
    case Path::kDense: return alone(make_dense_exchange(context, std::move(members)));
    case Path::kSum:
    case Path::kGather: return alone(make_coded_exchange(context, path, std::move(members)));
    case Path::kOkTopk: return alone(make_oktopk_exchange(context, members));
    case Path::kSra: return make_sra_exchange(context, std::move(members));
  }
  return Status(Code::kInternal, "aggregator: no such path");
}

Result<std::unique_ptr<BucketExchange>> make_exchange(const ExchangeContext& context, Path path,
                                                      Members members) {
  GW_ASSIGN(Exchanges exchanges, make_exchanges(context, path, std::move(members)));
  if (exchanges.size() == 1) return std::move(exchanges.front());
  return Status(Code::kInternal, "aggregator: strips where one exchange was asked for");
}

Result<std::unique_ptr<Aggregator>> Aggregator::create(Communicator& communicator,
                                                       const Registry& registry,
                                                       AggregatorOptions options) {
  GW_ASSIGN(Plan plan, read_plan(registry, options));
  GW_ASSIGN(auto own, communicator.split(0, communicator.rank()));
  std::unique_ptr<NodeGroups> nodes;
  Joins joins;
  for (const Rule& rule : plan.rules) {
    if (rule.inner != nullptr) joins.note(rule.keys.between);
  }
  if (joins.messages || joins.nccl) {
    GW_ASSIGN(nodes, split_nodes(*own, joins));
    plan.nccl_inside = nodes->nccl;
    if (!nodes->known) {
      plan.warnings.push_back(
          "intra_node: which ranks share a node is unknown, so each counts as a node of its own "
          "and all traffic is compressed; ranks that are processes find their nodes, threads "
          "(--inproc) have none; programs set CommunicatorOptions::node_of, or create the "
          "communicator from a Rendezvous");
    }
  }
  return std::unique_ptr<Aggregator>(std::make_unique<BucketAggregator>(
      std::move(own), std::move(nodes), std::move(options), std::move(plan)));
}

}  // namespace gradwire
