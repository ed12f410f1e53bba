// A bucket whose gradients travel as their coders' payloads, round after round. Each round goes the
// way of its kind: combined in the network, or gathered. Under kGather all rounds are gathered.
#include <utility>

#include "aggregate/coder_set.h"
#include "aggregate/exchange.h"
#include "aggregate/round_exchange.h"

namespace gradwire {
namespace {

class CodedExchange final : public BucketExchange {
 public:
  CodedExchange(std::vector<CodedParameter> coders, const ExchangeContext& context)
      : coders_(std::move(coders)), context_(context) {}

  Status open_rounds(const ExchangeContext& context, Path path) {
    for (int round = 0; round < most_rounds(coders_); ++round) {
      const CodedRound* first = round_of(coders_.front(), round);
      const bool reduce = path == Path::kSum && first != nullptr && first->kind.reduces();
      GW_ASSIGN(auto exchange, reduce ? make_reduce_round(context, coders_, round)
                                      : make_gather_round(context, coders_, round));
      rounds_.push_back(std::move(exchange));
    }
    return {};
  }

  int phases() const override { return static_cast<int>(rounds_.size()); }

  Result<std::size_t> encode(int round, std::uint64_t step) override {
    if (round == 0) GW_TRY(begin_coders(coders_, step, context_.workers, context_.stream()));
    return at(round).encode();
  }
  Result<std::optional<Work>> issue(int round) override { return at(round).issue(); }
  Status absorb(int round, std::uint64_t) override {
    GW_TRY(at(round).absorb());
    if (round + 1 < phases()) return {};
    GW_TRY(finish_coders(coders_, context_.workers, context_.stream()));
    return context_.await_lane();
  }
  std::size_t held_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& round : rounds_) bytes += round->held_bytes();
    return bytes;
  }
  std::vector<NamedTensor> state() override { return coder_state(coders_); }

 private:
  RoundExchange& at(int round) { return *rounds_[static_cast<std::size_t>(round)]; }

  std::vector<CodedParameter> coders_;
  const ExchangeContext& context_;
  std::vector<std::unique_ptr<RoundExchange>> rounds_;  // lent coders_
};

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_coded_exchange(const ExchangeContext& context,
                                                            Path path, Members members) {
  GW_ASSIGN(auto coders, open_coders(context, members, path));
  auto exchange = std::make_unique<CodedExchange>(std::move(coders), context);
  GW_TRY(exchange->open_rounds(context, path));
  return std::unique_ptr<BucketExchange>(std::move(exchange));
}

}  // namespace gradwire
