// Gradients as they are: one all-reduce over the bucket, then one multiplication by 1/size. Where
// the gradients of a bucket lie one after another in memory they are reduced in place.
//
// Gradients of 16 bits are added by owners of parts, in fp32 and in the order of ranks, and the
// mean is rounded once ("canonical"); on a ring every rank would round what it passes on.
#include <utility>

#include "aggregate/device_exchange.h"
#include "aggregate/exchange.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire {
namespace {

// Do the gradients follow one another in memory, in the order of `members`?
bool adjacent(const Members& members) {
  for (std::size_t i = 1; i < members.size(); ++i) {
    const TensorView& before = members[i - 1]->grad;
    if (before.data() + before.bytes().size() != members[i]->grad.data()) return false;
  }
  return true;
}

class DenseExchange final : public BucketExchange {
 public:
  DenseExchange(const ExchangeContext& context, Members members)
      : context_(context), members_(std::move(members)) {
    for (const Parameter* member : members_) elems_ += member->grad.elems();
  }

  // Where the bucket is reduced. Gradients may lie elsewhere in every step.
  Status place() {
    const TensorView& first = members_.front()->grad;
    in_place_ = adjacent(members_);
    if (in_place_) {
      flat_ = {first.data(), Shape::vector(elems_), first.dtype()};
      return {};
    }
    if (buffer_.bytes().empty()) {
      GW_ASSIGN(buffer_, context_.communicator.allocate(static_cast<std::size_t>(elems_) *
                                                        size_of(first.dtype())));
    }
    flat_ = buffer_.tensor(Shape::vector(elems_), first.dtype());
    return {};
  }

  int phases() const override { return 1; }

  Result<std::size_t> encode(int, std::uint64_t) override {
    GW_TRY(place());
    if (!in_place_) GW_TRY(copy_all(true));
    return flat_.bytes().size();
  }

  Result<std::optional<Work>> issue(int) override {
    const std::string_view algorithm =
        narrow() ? "canonical" : std::string_view(context_.algorithm);
    GW_ASSIGN(Work work, context_.communicator.all_reduce(
                             flat_, narrow() ? ReduceOp::kMean : ReduceOp::kSum,
                             {.algorithm = algorithm, .deadline = std::nullopt, .stream = {}}));
    return std::optional<Work>(std::move(work));
  }

  Status absorb(int, std::uint64_t) override {
    if (const int size = context_.communicator.size(); size > 1 && !narrow()) {
      GW_TRY(scale(flat_, 1.0 / size, {}));
    }
    return in_place_ ? Status() : copy_all(false);
  }

  std::size_t held_bytes() const override { return buffer_.bytes().size(); }

 private:
  bool narrow() const { return is_narrow(flat_.dtype()); }
  Status copy_all(bool to_flat) {
    std::int64_t begin = 0;
    for (const Parameter* member : members_) {
      const TensorView slot = flat_.slice(begin, member->grad.elems());
      const TensorView& from = to_flat ? member->grad : slot;
      const TensorView& to = to_flat ? slot : member->grad;
      GW_TRY(copy_bytes(from.bytes(), {}, to.bytes(), {}, {}));
      begin += member->grad.elems();
    }
    return {};
  }

  const ExchangeContext& context_;
  Members members_;
  std::int64_t elems_ = 0;
  bool in_place_ = false;
  Buffer buffer_;    // empty as long as all steps' gradients were reduced in place
  TensorView flat_;  // of this step: buffer_, or the gradients themselves
};

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_dense_exchange(const ExchangeContext& context,
                                                            Members members) {
  if (context.lane != nullptr) return make_dense_exchange_on_device(context, std::move(members));
  auto exchange = std::make_unique<DenseExchange>(context, std::move(members));
  GW_TRY(exchange->place());
  return std::unique_ptr<BucketExchange>(std::move(exchange));
}

}  // namespace gradwire
