#include "aggregate/device_exchange.h"

#include <string>
#include <utility>

#include "base/text.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire {
namespace {

// One all-reduce of the bucket's gradients where they lie, then one multiplication by 1/size: the
// sums of the exchange on the host, bit for bit, since both add up the same elements as one tensor.
class DenseOnDevice final : public BucketExchange {
 public:
  DenseOnDevice(const ExchangeContext& context, Members members)
      : context_(context), members_(std::move(members)) {}

  int phases() const override { return 1; }

  Result<std::size_t> encode(int, std::uint64_t) override {
    tensors_.clear();
    std::size_t bytes = 0;
    for (const Parameter* member : members_) {
      tensors_.push_back(member->grad);
      bytes += member->grad.bytes().size();
    }
    return bytes;
  }

  Result<std::optional<Work>> issue(int) override {
    GW_ASSIGN(Work work, context_.communicator.all_reduce_fused(tensors_, ReduceOp::kSum,
                                                                {.algorithm = context_.algorithm,
                                                                 .deadline = std::nullopt,
                                                                 .stream = context_.stream()}));
    return std::optional<Work>(std::move(work));
  }

  Status absorb(int, std::uint64_t) override {
    if (const int size = context_.communicator.size(); size > 1) {
      for (const TensorView& tensor : tensors_) {
        if (!tensor.empty()) GW_TRY(scale(tensor, 1.0 / size, context_.stream()));
      }
    }
    return context_.await_lane();
  }

 private:
  const ExchangeContext& context_;
  Members members_;
  std::vector<TensorView> tensors_;  // of this step
};

// Payloads of fixed lengths, one after another: a block a rank, gathered.
class GatherOnDevice final : public RoundExchange {
 public:
  GatherOnDevice(const ExchangeContext& context, std::vector<CodedParameter>& coders, int round,
                 Buffer own, Buffer all)
      : context_(context),
        coders_(coders),
        round_(round),
        own_(std::move(own)),
        all_(std::move(all)),
        lengths_(coders.size()) {}

  Result<std::size_t> encode() override {
    return encode_all(coders_, round_, own_.bytes(), lengths_, nullptr, context_.stream());
  }

  Result<std::optional<Work>> issue() override {
    const auto block = static_cast<std::int64_t>(own_.bytes().size());
    if (block == 0) return std::optional<Work>();
    GW_ASSIGN(Work work,
              context_.communicator.all_gather(
                  own_.tensor(Shape::vector(block), DType::kU8),
                  all_.tensor(Shape::vector(block * context_.communicator.size()), DType::kU8),
                  context_.payload_options()));
    return std::optional<Work>(std::move(work));
  }

  Status absorb() override {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < coders_.size(); ++i) {
      if (round_of(coders_[i], round_) == nullptr) continue;
      const Status status =
          coders_[i].coder->absorb(round_, payloads_at(begin, lengths_[i]), context_.stream());
      if (!status.ok()) {
        return status.with_context("parameter '" + coders_[i].parameter->name + "'");
      }
      begin += lengths_[i];
    }
    return {};
  }

  std::size_t held_bytes() const override { return own_.bytes().size() + all_.bytes().size(); }

 private:
  // By rank.
  std::vector<ConstByteSpan> payloads_at(std::size_t begin, std::size_t length) const {
    std::vector<ConstByteSpan> payloads;
    for (int rank = 0; rank < context_.communicator.size(); ++rank) {
      const std::size_t block = own_.bytes().size() * static_cast<std::size_t>(rank);
      payloads.push_back(all_.bytes().subspan(block + begin, length));
    }
    return payloads;
  }

  const ExchangeContext& context_;
  std::vector<CodedParameter>& coders_;
  int round_;
  Buffer own_;
  Buffer all_;
  std::vector<std::size_t> lengths_;
};

}  // namespace

Status check_path_on_device(const Parameter& parameter) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kUnsupported,
                  "aggregator: gradient '" + parameter.name + "' on a CUDA device: " + why);
  };
  if (parameter.inner != nullptr) return refuse("two levels (no inner=, or host memory, wanted)");
  if (parameter.path == Path::kOkTopk) {
    return refuse("combine=" + std::string(to_string(parameter.path)) +
                  " (combine=gather, or host memory, wanted)");
  }
  return {};
}

Result<std::unique_ptr<BucketExchange>> make_dense_exchange_on_device(
    const ExchangeContext& context, Members members) {
  return std::unique_ptr<BucketExchange>(
      std::make_unique<DenseOnDevice>(context, std::move(members)));
}

Result<std::unique_ptr<RoundExchange>> make_gather_round_on_device(
    const ExchangeContext& context, std::vector<CodedParameter>& coders, int round) {
  std::size_t bytes = 0;
  for (const CodedParameter& coded : coders) {
    const CodedRound* mine = round_of(coded, round);
    if (mine == nullptr) continue;
    if (!mine->kind.fixed || mine->kind.reduces()) {
      return Status(
          Code::kUnsupported,
          "parameter '" + coded.parameter->name + "' on a CUDA device: payloads " +
              (mine->kind.fixed ? "that are gathered and then reduced" : "whose lengths vary") +
              " (another method, or host memory, wanted)");
    }
    bytes += mine->bytes;
  }
  const auto size = static_cast<std::size_t>(context.communicator.size());
  const Device device = context.stream().device;
  GW_ASSIGN(Buffer own, Buffer::allocate(bytes, device));
  GW_ASSIGN(Buffer all, Buffer::allocate(bytes * size, device));
  return std::unique_ptr<RoundExchange>(
      std::make_unique<GatherOnDevice>(context, coders, round, std::move(own), std::move(all)));
}

}  // namespace gradwire
