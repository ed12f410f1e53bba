// Two levels: as `inner` says inside a node, compressed between nodes.
//
//   inner   reduce-scatter: the first `owners` ranks of every node hold shards of the node's mean,
//           times (ranks of the node * nodes / all ranks), so that the mean over nodes is the mean
//   outer   owners of one shard, one in every node: the parameter's own way to combine, with its
//           error feedback, over as many ranks as there are nodes
//   inner   all-gather of the shards
//
// Elementwise methods are cut into one piece per owner. Other methods see whole tensors, each of
// which has one owner in a node, picked by its name: their choice of elements, or their matrices,
// stay what they are, and tensors spread over owners. Residuals belong to owners; under ef14
//   sum of means + average over nodes of (error joined + error2 / nodes) == sum of average
//   gradients.
// On one node nothing is compressed, for there is nothing between nodes.
//
// Gradients that are not compressed (Path::kDense) are cut into pieces, too, which travel as they
// are. Of a device, inner exchanges go by NCCL where the communicator has it, in an order of sums
// of its own; the outer one as the parameters' `between` says. All work is enqueued on the
// aggregator's stream.
// Source of the idea: BytePS (Jiang et al., "A unified architecture for accelerating distributed
// DNN training", OSDI 2020), which compresses between machines alone.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "aggregate/exchange.h"
#include "aggregate/plan/node_groups.h"
#include "aggregate/shards.h"
#include "base/philox.h"
#include "device/ops.h"

namespace gradwire {
namespace {

// The parameter inside a node: without error feedback. `path`: of what travels between nodes.
Parameter inside(const Parameter& parameter, Path path, const NodeGroups& nodes) {
  const bool dense = path == Path::kDense;
  Parameter inner = parameter;
  spread_over_owners(inner, path, nodes.owners);
  inner.inner = nullptr;
  inner.compressor = parameter.inner;
  inner.path = dense || parameter.inner->spec() == "none" ? Path::kDense : Path::kSra;
  inner.error_feedback = false;
  inner.feedback = {};
  inner.scale = 1;
  return inner;
}

// What `all` has for exchanges over other ranks.
ExchangeContext level_context(const ExchangeContext& all, Communicator& ranks,
                              std::string algorithm,
                              AggregateForm form = AggregateForm::kAllReduce) {
  return {.communicator = ranks,
          .algorithm = std::move(algorithm),
          .workers = all.workers,
          .form = form,
          .lane = all.lane,
          .lane_seconds = all.lane_seconds};
}
// An algorithm's name is one of messages: NCCL has its own.
ExchangeContext inner_context(const ExchangeContext& all, AggregateForm form) {
  const bool nccl = all.nodes->nccl && all.lane != nullptr;
  return level_context(all, *all.nodes->inner, nccl ? "auto" : all.algorithm, form);
}

TensorView part_of(const TensorView& tensor, const Range& range) {
  const bool whole = range.size() == tensor.elems();
  return whole ? tensor : tensor.slice(range.begin, range.size());
}

class TwoLevelExchange final : public BucketExchange {
 public:
  TwoLevelExchange(const ExchangeContext& context, Path path, const Members& members)
      : nodes_(*context.nodes),
        members_(members),
        scatter_context_(inner_context(context, AggregateForm::kReduceScatter)),
        gather_context_(inner_context(context, AggregateForm::kAllGather)),
        outer_phases_(phases_of(path, members)) {
    const int rank = nodes_.inner->rank();
    const int size = nodes_.inner->size();
    factor_ = static_cast<double>(size) * nodes_.nodes / context.communicator.size();
    for (const Parameter* member : members) {
      gathered_.push_back(inside(*member, path, nodes_));
      scattered_.push_back(gathered_.back());
      // Draws of different nodes are summed and must be independent; all nodes gather alike.
      scattered_.back().seed = mix64(member->seed ^ mix64(static_cast<std::uint64_t>(nodes_.node)));
      const Range own = shard_of(gathered_.back(), size, rank);
      if (own.size() == 0) continue;
      own_.push_back(part_of(member->grad, own));
      places_.push_back({own.begin, own.end, nodes_.nodes, nodes_.node});
      outer_.push_back(*member);
      outer_.back().inner = nullptr;
      outer_.back().name += ".outer";
      // A node's owners count the elements of their pieces from 0, all under one name: each piece
      // needs draws of its own, which its owners in all nodes share.
      if (own.begin > 0) {
        outer_.back().seed = mix64(member->seed ^ mix64(static_cast<std::uint64_t>(own.begin)));
      }
      outer_.back().grad = own_.back();
    }
  }

  Status open(const ExchangeContext& context, Path path) {
    GW_ASSIGN(scatter_, make_exchange(scatter_context_, scattered_.front().path, of(scattered_)));
    GW_ASSIGN(gather_, make_exchange(gather_context_, gathered_.front().path, of(gathered_)));
    if (nodes_.nodes == 1 || outer_.empty()) return {};
    outer_context_ = std::make_unique<ExchangeContext>(
        level_context(context, nodes_.between(members_.front()->between), context.algorithm));
    GW_ASSIGN(between_, make_exchange(*outer_context_, path, of(outer_)));
    return {};
  }

  int phases() const override { return outer_phases_ + 2; }

  Result<std::size_t> encode(int phase, std::uint64_t step) override {
    if (phase == 0) follow_gradients();
    BucketExchange* exchange = at(phase);
    return exchange == nullptr ? Result<std::size_t>(0) : exchange->encode(within(phase), step);
  }
  Result<std::optional<Work>> issue(int phase) override {
    BucketExchange* exchange = at(phase);
    if (exchange == nullptr) return std::optional<Work>();
    return exchange->issue(within(phase));
  }
  Status absorb(int phase, std::uint64_t step) override {
    BucketExchange* exchange = at(phase);
    if (exchange == nullptr) return {};
    GW_TRY(exchange->absorb(within(phase), step));
    if (phase > 0 || factor_ == 1) return {};
    for (const TensorView& own : own_) GW_TRY(scale(own, factor_, scatter_context_.stream()));
    return {};
  }

  std::size_t held_bytes() const override {
    std::size_t bytes = 0;
    for (const BucketExchange* const level : {scatter_.get(), between_.get(), gather_.get()}) {
      if (level != nullptr) bytes += level->held_bytes();
    }
    return bytes;
  }

  // "<parameter>.outer.<what between_ says>"; "<parameter>.outer.range": the elements begin to end
  // that this rank owns, the number of nodes, and which one this is.
  std::vector<NamedTensor> state() override {
    if (between_ == nullptr) return {};
    std::vector<NamedTensor> all = between_->state();
    if (all.empty()) return all;
    for (std::size_t i = 0; i < outer_.size(); ++i) {
      auto* const data = reinterpret_cast<std::byte*>(places_[i].data());
      all.push_back({outer_[i].name + ".range", {data, Shape::vector(4), DType::kI64}});
    }
    return all;
  }

 private:
  static Members of(const std::vector<Parameter>& parameters) {
    Members members;
    for (const Parameter& parameter : parameters) members.push_back(&parameter);
    return members;
  }

  // Gradients may lie elsewhere in every step.
  void follow_gradients() {
    std::size_t owned = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const TensorView& grad = members_[i]->grad;
      scattered_[i].grad = gathered_[i].grad = grad;
      const Range own = shard_of(gathered_[i], nodes_.inner->size(), nodes_.inner->rank());
      if (own.size() == 0) continue;
      outer_[owned].grad = own_[owned] = part_of(grad, own);
      ++owned;
    }
  }

  BucketExchange* at(int phase) const {
    if (phase == 0) return scatter_.get();
    if (phase == outer_phases_ + 1) return gather_.get();
    const bool busy = between_ != nullptr && phase <= between_->phases();
    return busy ? between_.get() : nullptr;
  }
  int within(int phase) const { return phase == 0 || phase > outer_phases_ ? 0 : phase - 1; }

  const NodeGroups& nodes_;
  const Members members_;
  ExchangeContext scatter_context_;
  ExchangeContext gather_context_;
  std::unique_ptr<ExchangeContext> outer_context_;
  int outer_phases_;
  double factor_ = 1;
  // Fixed once open; the exchanges point to them.
  std::vector<Parameter> scattered_, gathered_, outer_;
  std::vector<TensorView> own_;                      // of outer_
  std::vector<std::array<std::int64_t, 4>> places_;  // of outer_: state()'s range
  std::unique_ptr<BucketExchange> scatter_, between_, gather_;
};

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_two_level_exchange(const ExchangeContext& context,
                                                                Path path, const Members& members) {
  auto exchange = std::make_unique<TwoLevelExchange>(context, path, members);
  GW_TRY(exchange->open(context, path));
  return std::unique_ptr<BucketExchange>(std::move(exchange));
}

}  // namespace gradwire
