// Payloads that add up (or whose maximum counts) stand one after another in a buffer of the
// payload's type; one all-reduce combines them, each coder absorbs its slice of the result.
#include <array>
#include <utility>

#include "aggregate/round_exchange.h"
#include "gradwire/buffer.h"

namespace gradwire {
namespace {

class ReduceRound final : public RoundExchange {
 public:
  ReduceRound(const ExchangeContext& context, std::vector<CodedParameter>& coders, int round,
              Buffer buffer)
      : context_(context),
        coders_(coders),
        round_(round),
        kind_(round_of(coders.front(), round)->kind),
        buffer_(std::move(buffer)),
        lengths_(coders.size()) {}

  Result<std::size_t> encode() override {
    GW_ASSIGN(filled_, encode_all(coders_, round_, buffer_.bytes(), lengths_, context_.workers,
                                  context_.stream()));
    return filled_;
  }

  Result<std::optional<Work>> issue() override {
    if (filled_ == 0) return std::optional<Work>();
    const auto elems = static_cast<std::int64_t>(filled_ / size_of(kind_.payload));
    const ReduceOp op = kind_.exchange == Exchange::kAllReduceMax ? ReduceOp::kMax : ReduceOp::kSum;
    GW_ASSIGN(Work work, context_.communicator.all_reduce(
                             TensorView(buffer_.bytes().data(), Shape::vector(elems), kind_.payload,
                                        buffer_.device()),
                             op,
                             {.algorithm = context_.algorithm,
                              .deadline = std::nullopt,
                              .stream = context_.stream()}));
    return std::optional<Work>(std::move(work));
  }

  Status absorb() override {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < coders_.size(); ++i) {
      const std::array<ConstByteSpan, 1> result{buffer_.bytes().subspan(begin, lengths_[i])};
      const Status status = coders_[i].coder->absorb(round_, result, context_.stream());
      if (!status.ok()) {
        return status.with_context("parameter '" + coders_[i].parameter->name + "'");
      }
      begin += lengths_[i];
    }
    return {};
  }

  std::size_t held_bytes() const override { return buffer_.bytes().size(); }

 private:
  const ExchangeContext& context_;
  std::vector<CodedParameter>& coders_;
  int round_;
  RoundKind kind_;
  Buffer buffer_;
  std::vector<std::size_t> lengths_;  // of each coder's payload, in this step
  std::size_t filled_ = 0;
};

}  // namespace

Result<std::unique_ptr<RoundExchange>> make_reduce_round(const ExchangeContext& context,
                                                         std::vector<CodedParameter>& coders,
                                                         int round) {
  std::size_t most = 0;
  for (const CodedParameter& coded : coders) most += round_of(coded, round)->bytes;
  GW_ASSIGN(Buffer buffer, context.lane == nullptr
                               ? context.communicator.allocate(most)
                               : Buffer::allocate(most, context.stream().device));
  return std::unique_ptr<RoundExchange>(
      std::make_unique<ReduceRound>(context, coders, round, std::move(buffer)));
}

}  // namespace gradwire
