// Payloads that add up: those of one round stand one after another in a buffer of the payload's
// type, one all-reduce sums them, each coder absorbs its slice of the sum. Rounds in order (of
// PowerSGD: all P, then all Q).
#include <array>
#include <utility>

#include "aggregate/coder_set.h"
#include "aggregate/exchange.h"
#include "base/text.h"
#include "gradwire/buffer.h"

namespace gradwire {
namespace {

class SumExchange final : public BucketExchange {
 public:
  SumExchange(const ExchangeContext& context, std::vector<CodedParameter> coders,
              std::vector<Buffer> rounds, std::vector<std::size_t> bytes, DType dtype)
      : context_(context),
        coders_(std::move(coders)),
        rounds_(std::move(rounds)),
        bytes_(std::move(bytes)),
        dtype_(dtype) {}

  int phases() const override { return static_cast<int>(rounds_.size()); }

  Result<std::size_t> encode(int round, std::uint64_t step) override {
    if (round == 0) GW_TRY(begin_coders(coders_, step));
    std::size_t begin = 0;
    for (CodedParameter& coded : coders_) {
      if (!has_round(coded, round)) continue;
      const std::size_t wanted = coded.bytes[static_cast<std::size_t>(round)];
      auto wrote = coded.coder->encode(round, payload(round).subspan(begin, wanted), {});
      if (!wrote.has_value()) return wrote.error().with_context(coded.parameter->name);
      if (wrote.value() != wanted) {
        return Status(Code::kInternal,
                      coded.parameter->name + format(": a summable payload of %zu bytes (%zu "
                                                     "claimed)",
                                                     wrote.value(), wanted));
      }
      begin += wanted;
    }
    return begin;
  }

  Result<std::optional<Work>> issue(int round) override {
    const ByteSpan bytes = payload(round);
    if (bytes.empty()) return std::optional<Work>();
    const auto elems = static_cast<std::int64_t>(bytes.size() / size_of(dtype_));
    GW_ASSIGN(Work work,
              context_.communicator.all_reduce(
                  TensorView(bytes.data(), Shape::vector(elems), dtype_), ReduceOp::kSum,
                  {.algorithm = context_.algorithm, .deadline = std::nullopt, .stream = {}}));
    return std::optional<Work>(std::move(work));
  }

  Status absorb(int round, std::uint64_t) override {
    std::size_t begin = 0;
    for (CodedParameter& coded : coders_) {
      if (!has_round(coded, round)) continue;
      const std::size_t count = coded.bytes[static_cast<std::size_t>(round)];
      const std::array<ConstByteSpan, 1> sum{payload(round).subspan(begin, count)};
      const Status status = coded.coder->absorb(round, sum, {});
      if (!status.ok()) return status.with_context(coded.parameter->name);
      begin += count;
    }
    return round + 1 == phases() ? finish_coders(coders_) : Status();
  }

  std::vector<NamedTensor> state() override { return coder_state(coders_); }

 private:
  ByteSpan payload(int round) const {
    const auto r = static_cast<std::size_t>(round);
    return rounds_[r].bytes().first(bytes_[r]);
  }

  const ExchangeContext& context_;
  std::vector<CodedParameter> coders_;
  std::vector<Buffer> rounds_;
  std::vector<std::size_t> bytes_;  // of each round
  DType dtype_;
};

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_sum_exchange(const ExchangeContext& context,
                                                          Members members) {
  GW_ASSIGN(auto coders, open_coders(context, members, Path::kSum));
  const DType dtype = payload_dtype(*members.front());
  std::vector<Buffer> rounds;
  std::vector<std::size_t> bytes;
  for (int round = 0; round < most_rounds(coders); ++round) {
    std::size_t total = 0;
    for (const CodedParameter& coded : coders) {
      total += has_round(coded, round) ? coded.bytes[static_cast<std::size_t>(round)] : 0;
    }
    GW_ASSIGN(Buffer buffer, context.communicator.allocate(total));
    rounds.push_back(std::move(buffer));
    bytes.push_back(total);
  }
  return std::unique_ptr<BucketExchange>(std::make_unique<SumExchange>(
      context, std::move(coders), std::move(rounds), std::move(bytes), dtype));
}

}  // namespace gradwire
