// Gradients of 16 bits under a method that works in fp32, bucket by bucket: they are widened before
// the bucket's first phase, and the means are rounded to nearest even after its last. So there are
// never more of them in fp32 than a few buckets hold. What is kept between steps (residuals, ...)
// is as of gradients in fp32, without the scale that those of 16 bits bear.
#include <utility>

#include "aggregate/exchange.h"
#include "aggregate/narrow/wide_buffers.h"
#include "aggregate/shards.h"
#include "device/ops.h"

namespace gradwire {
namespace {

class WidenedExchange final : public BucketExchange {
 public:
  WidenedExchange(const ExchangeContext& context, const Members& members)
      : context_(context), form_(context.form), members_(members) {
    context_.strip_bytes = 0;  // the bucket is widened as a whole
    wide_.reserve(members.size());
    for (const Parameter* member : members_) {
      wide_.push_back(*member);
      wide_.back().grad =
          TensorView(&nowhere_, member->grad.shape(), DType::kF32, member->grad.device());
      elems_ += member->grad.elems();
    }
  }

  Status open(Path path) {
    Members own;
    for (const Parameter& one : wide_) own.push_back(&one);
    GW_ASSIGN(inner_, make_exchange(context_, path, std::move(own)));
    context_.wide->expect(wide_bytes());
    return {};
  }

  int phases() const override { return inner_->phases(); }

  Result<std::size_t> encode(int phase, std::uint64_t step) override {
    if (phase == 0) GW_TRY(widen());
    return inner_->encode(phase, step);
  }

  Result<std::optional<Work>> issue(int phase) override { return inner_->issue(phase); }

  Status absorb(int phase, std::uint64_t step) override {
    GW_TRY(inner_->absorb(phase, step));
    return phase + 1 == phases() ? round() : Status();
  }

  std::size_t held_bytes() const override { return inner_->held_bytes(); }
  std::vector<NamedTensor> state() override { return inner_->state(); }

 private:
  // What of a member this rank's exchange reads, or leaves, where the form has shards.
  Range part(const Parameter& member, bool own) const {
    if (!own) return {0, member.grad.elems()};
    const Communicator& communicator = context_.communicator;
    return shard_of(member, communicator.size(), communicator.rank());
  }

  std::size_t wide_bytes() const { return static_cast<std::size_t>(elems_) * sizeof(float); }

  Status widen() {
    const Device device = members_.front()->grad.device();
    GW_ASSIGN(buffer_, context_.wide->take(wide_bytes(), device));
    std::byte* place = buffer_.bytes().data();
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const TensorView& grad = members_[i]->grad;
      TensorView& wide = wide_[i].grad;
      wide = TensorView(place, grad.shape(), DType::kF32, device);
      place += wide.bytes().size();
      const Range read = part(wide_[i], form_ == AggregateForm::kAllGather);
      if (read.size() == 0) continue;
      const TensorView values = wide.slice(read.begin, read.size());
      GW_TRY(cast(grad.slice(read.begin, read.size()), values, stream()));
      if (scale() != 1) GW_TRY(gradwire::scale(values, 1 / scale(), stream()));
    }
    return {};
  }

  double scale() const { return context_.wide->scale(); }
  Stream stream() const { return context_.stream(); }

  // With a scale nobody looks for overflows after this: what 16 bits cannot hold becomes the
  // largest that they can.
  Status round() {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const Range left = part(wide_[i], form_ == AggregateForm::kReduceScatter);
      if (left.size() == 0) continue;
      const TensorView values = wide_[i].grad.slice(left.begin, left.size());
      const TensorView to = members_[i]->grad.slice(left.begin, left.size());
      GW_TRY(scale() == 1 ? cast(values, to, stream())
                          : saturating_cast(values, scale(), to, stream()));
    }
    GW_TRY(context_.await_lane());
    context_.wide->give_back(std::move(buffer_));
    return {};
  }

  ExchangeContext context_;
  AggregateForm form_;
  Members members_;
  std::vector<Parameter> wide_;  // the members in fp32: lent to inner_
  std::byte nowhere_{};          // where they are between steps, so that they have elements
  std::int64_t elems_ = 0;
  Buffer buffer_;  // what wide_ is in, while the bucket is in work
  std::unique_ptr<BucketExchange> inner_;
};

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_widened_exchange(const ExchangeContext& context,
                                                              Path path, const Members& members) {
  auto exchange = std::make_unique<WidenedExchange>(context, members);
  GW_TRY(exchange->open(path));
  return std::unique_ptr<BucketExchange>(std::move(exchange));
}

}  // namespace gradwire
