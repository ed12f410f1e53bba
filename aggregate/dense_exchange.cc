// Gradients as they are: one all-reduce over the bucket, then one multiplication by 1/size. Where
// the gradients of a bucket lie one after another in memory they are reduced in place.
#include <utility>

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
  DenseExchange(const ExchangeContext& context, Members members, Buffer buffer, TensorView flat)
      : context_(context), members_(std::move(members)), buffer_(std::move(buffer)), flat_(flat) {}

  int phases() const override { return 1; }

  Result<std::size_t> encode(int, std::uint64_t) override {
    if (!in_place()) GW_TRY(copy_all(true));
    return flat_.bytes().size();
  }

  Result<std::optional<Work>> issue(int) override {
    GW_ASSIGN(Work work,
              context_.communicator.all_reduce(
                  flat_, ReduceOp::kSum,
                  {.algorithm = context_.algorithm, .deadline = std::nullopt, .stream = {}}));
    return std::optional<Work>(std::move(work));
  }

  Status absorb(int, std::uint64_t) override {
    if (const int size = context_.communicator.size(); size > 1) {
      GW_TRY(scale(flat_, 1.0 / size, {}));
    }
    return in_place() ? Status() : copy_all(false);
  }

  std::size_t held_bytes() const override { return buffer_.bytes().size(); }

 private:
  bool in_place() const { return buffer_.bytes().empty(); }

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
  Buffer buffer_;    // empty when the gradients are reduced in place
  TensorView flat_;  // of buffer_, or the gradients themselves
};

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_dense_exchange(const ExchangeContext& context,
                                                            Members members) {
  std::int64_t elems = 0;
  for (const Parameter* member : members) elems += member->grad.elems();
  const TensorView& first = members.front()->grad;
  Buffer buffer;
  TensorView flat(first.data(), Shape::vector(elems), first.dtype());
  if (!adjacent(members)) {
    GW_ASSIGN(buffer, context.communicator.allocate(static_cast<std::size_t>(elems) *
                                                    size_of(first.dtype())));
    flat = buffer.tensor(Shape::vector(elems), first.dtype());
  }
  return std::unique_ptr<BucketExchange>(
      std::make_unique<DenseExchange>(context, std::move(members), std::move(buffer), flat));
}

}  // namespace gradwire
