// Opaque payloads: every rank receives those of all ranks and absorbs them in rank order.
//
//   block := table payload{parameters}     one per rank and round
//   table := length{parameters}            u32 little-endian, bytes of each payload; absent when
//                                          all methods of the bucket write fixed lengths
//
// Fixed lengths are known to all, so that nothing but payload travels. Otherwise the lengths of the
// blocks travel first, 8 bytes a rank.
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "aggregate/coder_set.h"
#include "aggregate/exchange.h"
#include "base/text.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire {
namespace {

constexpr std::size_t kLengthBytes = 4;

class GatherExchange final : public BucketExchange {
 public:
  GatherExchange(const ExchangeContext& context, std::vector<CodedParameter> coders, bool fixed)
      : context_(context),
        coders_(std::move(coders)),
        rounds_(static_cast<std::size_t>(most_rounds(coders_))),
        fixed_(fixed),
        lengths_(coders_.size()) {}

  int phases() const override { return static_cast<int>(rounds_.size()); }

  Result<std::size_t> encode(int round, std::uint64_t step) override {
    if (round == 0) GW_TRY(begin_coders(coders_, step));
    std::vector<std::byte>& own = blocks(round).own;
    own.resize(table_bytes() + room(round));
    std::size_t end = table_bytes();
    std::size_t payload_bytes = 0;
    for (std::size_t i = 0; i < coders_.size(); ++i) {
      lengths_[i] = 0;
      if (has_round(coders_[i], round)) {
        GW_ASSIGN(lengths_[i], encode_one(coders_[i], round, ByteSpan(own).subspan(end)));
      }
      end += lengths_[i];
      payload_bytes += lengths_[i];
    }
    own.resize(end);
    if (!fixed_) write_table(own);
    return payload_bytes;
  }

  Result<std::optional<Work>> issue(int round) override {
    auto& [own, all, bytes] = blocks(round);
    if (!fixed_) {
      GW_ASSIGN(Work work, context_.communicator.all_gather_unsized(own, all, bytes));
      return std::optional<Work>(std::move(work));
    }
    const auto size = static_cast<std::size_t>(context_.communicator.size());
    bytes.assign(size, static_cast<std::int64_t>(own.size()));
    all.resize(own.size() * size);
    if (own.empty()) return std::optional<Work>();
    GW_ASSIGN(Work work, context_.communicator.all_gather_v(own, all, bytes));
    return std::optional<Work>(std::move(work));
  }

  Status absorb(int round, std::uint64_t) override {
    GW_TRY(find_payloads(round));
    for (std::size_t i = 0; i < coders_.size(); ++i) {
      if (!has_round(coders_[i], round)) continue;
      const Status status = absorb_one(i, round);
      if (!status.ok()) {
        return status.with_context("parameter '" + coders_[i].parameter->name + "'");
      }
    }
    return round + 1 == phases() ? finish_coders(coders_) : Status();
  }

  std::vector<NamedTensor> state() override { return coder_state(coders_); }

 private:
  // What one round sent and received. Coders may look at it until they finish.
  struct Blocks {
    std::vector<std::byte> own;
    std::vector<std::byte> all;  // in rank order
    std::vector<std::int64_t> bytes;
  };
  Blocks& blocks(int round) { return rounds_[static_cast<std::size_t>(round)]; }

  std::size_t table_bytes() const { return fixed_ ? 0 : coders_.size() * kLengthBytes; }

  std::size_t room(int round) const {
    std::size_t total = 0;
    for (const CodedParameter& coded : coders_) {
      if (has_round(coded, round)) total += coded.bytes[static_cast<std::size_t>(round)];
    }
    return total;
  }

  Result<std::size_t> encode_one(CodedParameter& coded, int round, ByteSpan free) {
    const std::size_t most = coded.bytes[static_cast<std::size_t>(round)];
    auto wrote = coded.coder->encode(round, free.first(most), {});
    if (!wrote.has_value()) {
      return wrote.error().with_context("parameter '" + coded.parameter->name + "'");
    }
    if (wrote.value() > most || (fixed_ && wrote.value() != most)) {
      return Status(
          Code::kInternal,
          format("parameter '%s': a payload of %zu bytes (%s%zu claimed)",
                 coded.parameter->name.c_str(), wrote.value(), fixed_ ? "" : "at most ", most));
    }
    return wrote;
  }

  void write_table(std::vector<std::byte>& own) const {
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const auto length = static_cast<std::uint32_t>(lengths_[i]);
      std::memcpy(own.data() + i * kLengthBytes, &length, kLengthBytes);
    }
  }

  // payloads_[i][r]: what rank r sent for coder i. Lengths come from the network and are checked.
  Status find_payloads(int round) {
    payloads_.assign(coders_.size(), {});
    const Blocks& received = blocks(round);
    ConstByteSpan rest = received.all;
    for (std::size_t rank = 0; rank < received.bytes.size(); ++rank) {
      const auto count = static_cast<std::size_t>(received.bytes[rank]);
      if (count > rest.size() || count < table_bytes()) {
        return {Code::kCorruptPayload,
                format("rank %zu's block has %zu bytes (%zu of table wanted, %zu received)", rank,
                       count, table_bytes(), rest.size())};
      }
      GW_TRY(find_payloads_of(static_cast<int>(rank), rest.first(count), round));
      rest = rest.subspan(count);
    }
    return {};
  }

  Status find_payloads_of(int rank, ConstByteSpan block, int round) {
    ConstByteSpan rest = block.subspan(table_bytes());
    for (std::size_t i = 0; i < coders_.size(); ++i) {
      const std::size_t most =
          has_round(coders_[i], round) ? coders_[i].bytes[static_cast<std::size_t>(round)] : 0;
      std::size_t length = most;
      if (!fixed_) {
        std::uint32_t told = 0;
        std::memcpy(&told, block.data() + i * kLengthBytes, kLengthBytes);
        length = told;
      }
      if (length > most || length > rest.size()) {
        return {Code::kCorruptPayload,
                format("rank %d's payload of parameter '%s' has %zu bytes (at most %zu wanted, %zu "
                       "received)",
                       rank, coders_[i].parameter->name.c_str(), length, most, rest.size())};
      }
      payloads_[i].push_back(rest.first(length));
      rest = rest.subspan(length);
    }
    if (!rest.empty()) {
      return {Code::kCorruptPayload,
              format("rank %d's block has %zu bytes too many", rank, rest.size())};
    }
    return {};
  }

  Status absorb_one(std::size_t i, int round) {
    CodedParameter& coded = coders_[i];
    if (!coded.adds_up) return coded.coder->absorb(round, payloads_[i], {});
    GW_TRY(add_payloads(coded, payloads_[i], round));
    const auto r = static_cast<std::size_t>(round);
    const std::array<ConstByteSpan, 1> sum{sums_[i][r].bytes().first(coded.bytes[r])};
    return coded.coder->absorb(round, sum, {});
  }

  // A factored method's payloads, added in rank order: what an all-reduce would have done. The sum
  // stays until the coder has finished, the next payload is copied because it may stand unaligned.
  Status add_payloads(const CodedParameter& coded, const std::vector<ConstByteSpan>& payloads,
                      int round) {
    const auto i = static_cast<std::size_t>(&coded - coders_.data());
    const auto r = static_cast<std::size_t>(round);
    const std::size_t count = coded.bytes[r];
    if (sums_.size() != coders_.size()) sums_.resize(coders_.size());
    if (sums_[i].size() != coded.bytes.size()) sums_[i].resize(coded.bytes.size());
    if (sums_[i][r].bytes().size() < count) {
      GW_ASSIGN(sums_[i][r], Buffer::allocate(count));
    }
    if (next_.bytes().size() < count) {
      GW_ASSIGN(next_, Buffer::allocate(count));
    }
    const Shape shape = Shape::vector(static_cast<std::int64_t>(count / size_of(coded.payload)));
    for (std::size_t rank = 0; rank < payloads.size() && count > 0; ++rank) {
      Buffer& into = rank == 0 ? sums_[i][r] : next_;
      GW_TRY(copy_bytes(payloads[rank], {}, into.bytes().first(count), {}, {}));
      if (rank == 0) continue;
      GW_TRY(reduce(ReduceOp::kSum, next_.tensor(shape, coded.payload),
                    sums_[i][r].tensor(shape, coded.payload), {}));
    }
    return {};
  }

  const ExchangeContext& context_;
  std::vector<CodedParameter> coders_;
  std::vector<Blocks> rounds_;
  bool fixed_;
  std::vector<std::size_t> lengths_;                  // of this rank's payloads, by coder
  std::vector<std::vector<ConstByteSpan>> payloads_;  // by coder, by rank
  std::vector<std::vector<Buffer>> sums_;             // by coder, by round: where payloads add up
  Buffer next_;
};

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_gather_exchange(const ExchangeContext& context,
                                                             Members members) {
  GW_ASSIGN(auto coders, open_coders(context, members, Path::kGather));
  bool fixed = true;
  for (const CodedParameter& coded : coders) {
    fixed = fixed && coded.fixed;
    for (const std::size_t bytes : coded.bytes) {
      if (bytes > std::numeric_limits<std::uint32_t>::max()) {
        return Status(Code::kUnsupported,
                      format("parameter '%s': payloads of up to %zu bytes (at most 4294967295)",
                             coded.parameter->name.c_str(), bytes));
      }
    }
  }
  return std::unique_ptr<BucketExchange>(
      std::make_unique<GatherExchange>(context, std::move(coders), fixed));
}

}  // namespace gradwire
