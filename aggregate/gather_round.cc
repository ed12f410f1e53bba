// Opaque payloads: every rank receives those of all ranks, and coders absorb them in rank order.
//
//   block := table payload{parameters}     one per rank
//   table := length{parameters}            u32 little-endian, bytes of each payload, or u64 in a
//                                          round of which a payload may have 4 GiB or more; absent
//                                          when all payloads of the round have fixed lengths
//
// Fixed lengths are known to all, so that nothing but payload travels. Otherwise the lengths of the
// blocks travel first, 8 bytes a rank. Payloads that the method would have reduced in the network
// are reduced here, in rank order.
#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "aggregate/device_exchange.h"
#include "aggregate/round_exchange.h"
#include "base/elements.h"
#include "base/text.h"
#include "compress/little_endian.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire {
namespace {

// Memory that is written before it is read, and so never filled with zeros: rooms are as large as
// payloads may be, which of methods of varying length is far more than what they write.
class Room {
 public:
  // `count` bytes, of what was there or not.
  ByteSpan take(std::size_t count) {
    if (count > room_) {
      bytes_.reset();
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(count);
      room_ = count;
    }
    size_ = count;
    return bytes();
  }
  // The first of them.
  void keep(std::size_t count) { size_ = count; }
  ByteSpan bytes() const { return {bytes_.get(), size_}; }
  std::size_t held() const { return room_; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t room_ = 0;
  std::size_t size_ = 0;
};

class GatherRound final : public RoundExchange {
 public:
  GatherRound(const ExchangeContext& context, std::vector<CodedParameter>& coders, int round)
      : context_(context), coders_(coders), round_(round), sums_(coders.size()) {
    for (const CodedParameter& coded : coders_) {
      const CodedRound* mine = round_of(coded, round_);
      fixed_ = fixed_ && (mine == nullptr || mine->kind.fixed);
      room_ += most_bytes(coded);
      if (most_bytes(coded) > std::numeric_limits<std::uint32_t>::max()) length_bytes_ = 8;
    }
  }

  Result<std::size_t> encode() override {
    const ByteSpan room = own_.take(table_bytes() + room_).subspan(table_bytes());
    GW_ASSIGN(const std::size_t wrote,
              encode_all(coders_, round_, room, lengths_, context_.workers));
    for (std::size_t i = 0; !fixed_ && i < coders_.size(); ++i) {
      store_length(i, lengths_[i]);
    }
    own_.keep(table_bytes() + wrote);
    return wrote;
  }

  Result<std::optional<Work>> issue() override {
    const auto size = static_cast<std::size_t>(context_.communicator.size());
    bytes_.assign(size, static_cast<std::int64_t>(own_.bytes().size()));
    if (!fixed_) GW_TRY(learn_lengths());
    const ByteSpan all = all_.take(
        static_cast<std::size_t>(std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0})));
    if (all.empty()) return std::optional<Work>();
    GW_ASSIGN(Work work, context_.communicator.all_gather_v(own_.bytes(), all, bytes_));
    return std::optional<Work>(std::move(work));
  }

  Status absorb() override {
    GW_TRY(find_payloads());
    for (std::size_t i = 0; i < coders_.size(); ++i) {
      if (round_of(coders_[i], round_) == nullptr) continue;
      const Status status = absorb_one(i);
      if (!status.ok()) {
        return status.with_context("parameter '" + coders_[i].parameter->name + "'");
      }
    }
    return {};
  }

  std::size_t held_bytes() const override {
    std::size_t bytes = own_.held() + all_.held() + next_.bytes().size();
    for (const Buffer& sum : sums_) bytes += sum.bytes().size();
    return bytes;
  }

 private:
  std::size_t most_bytes(const CodedParameter& coded) const {
    const CodedRound* mine = round_of(coded, round_);
    return mine == nullptr ? 0 : mine->bytes;
  }

  std::size_t table_bytes() const { return fixed_ ? 0 : coders_.size() * length_bytes_; }
  void store_length(std::size_t coder, std::uint64_t length) {
    std::byte* const to = own_.bytes().data() + coder * length_bytes_;
    if (length_bytes_ == 8) return store_le(to, length);
    store_le(to, static_cast<std::uint32_t>(length));
  }
  std::uint64_t length_in(ConstByteSpan block, std::size_t coder) const {
    const std::byte* const from = block.data() + coder * length_bytes_;
    return length_bytes_ == 8 ? load_le<std::uint64_t>(from) : load_le<std::uint32_t>(from);
  }

  // Of all ranks' blocks. What is far beyond any rank's claims gets no memory; of what is a little
  // beyond them the table says whose payload it is.
  Status learn_lengths() {
    const auto own = static_cast<std::int64_t>(own_.bytes().size());
    GW_ASSIGN(Work work, context_.communicator.all_gather(const_view_of(std::span(&own, 1)),
                                                          view_of(std::span(bytes_))));
    GW_TRY(work.wait());
    const std::size_t most = table_bytes() + room_;
    for (std::size_t rank = 0; rank < bytes_.size(); ++rank) {
      if (bytes_[rank] >= 0 && static_cast<std::uint64_t>(bytes_[rank]) <= 2 * most) continue;
      return {Code::kCorruptPayload,
              format("rank %zu's block has %lld bytes (expected at most %zu)", rank,
                     static_cast<long long>(bytes_[rank]), most)};
    }
    return {};
  }

  // payloads_[i][r]: what rank r sent for coder i. Lengths come from the network and are checked.
  Status find_payloads() {
    payloads_.assign(coders_.size(), {});
    ConstByteSpan rest = all_.bytes();
    for (std::size_t rank = 0; rank < bytes_.size(); ++rank) {
      const auto count = static_cast<std::size_t>(bytes_[rank]);
      if (count > rest.size() || count < table_bytes()) {
        return {Code::kCorruptPayload,
                format("rank %zu's block has %zu bytes (expected %zu of table, %zu received)", rank,
                       count, table_bytes(), rest.size())};
      }
      GW_TRY(find_payloads_of(static_cast<int>(rank), rest.first(count)));
      rest = rest.subspan(count);
    }
    return {};
  }

  Status find_payloads_of(int rank, ConstByteSpan block) {
    ConstByteSpan rest = block.subspan(table_bytes());
    for (std::size_t i = 0; i < coders_.size(); ++i) {
      const std::size_t most = most_bytes(coders_[i]);
      const auto length = fixed_ ? most : static_cast<std::size_t>(length_in(block, i));
      if (length > most || length > rest.size()) {
        return {Code::kCorruptPayload,
                format("rank %d's payload of parameter '%s' has %zu bytes (expected at most %zu, "
                       "%zu received)",
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

  Status absorb_one(std::size_t i) {
    Coder& coder = *coders_[i].coder;
    const RoundKind& kind = round_of(coders_[i], round_)->kind;
    if (!kind.reduces()) return coder.absorb(round_, payloads_[i], {});
    // The sum stays until the coder has finished.
    GW_TRY(reduce_payloads(payloads_[i], kind, {}, sums_[i], next_));
    const std::array<ConstByteSpan, 1> sum{sums_[i].bytes().first(payloads_[i][0].size())};
    return coder.absorb(round_, sum, {});
  }

  const ExchangeContext& context_;
  std::vector<CodedParameter>& coders_;
  int round_;
  bool fixed_ = true;
  std::size_t length_bytes_ = 4;      // of a length in the table
  std::size_t room_ = 0;              // for payloads, at most
  std::vector<std::size_t> lengths_;  // of own payloads, by coder
  // What was sent and received. Coders may look at it until they finish.
  Room own_;
  Room all_;  // in rank order
  std::vector<std::int64_t> bytes_;
  std::vector<std::vector<ConstByteSpan>> payloads_;  // by coder, by rank
  std::vector<Buffer> sums_;                          // by coder: where payloads reduce
  Buffer next_;
};

}  // namespace

// The next payload is copied because it may stand unaligned.
Status reduce_payloads(const std::vector<ConstByteSpan>& payloads, const RoundKind& kind,
                       const Stream& stream, Buffer& sum, Buffer& next) {
  const Device device = stream.device;
  const std::size_t count = payloads[0].size();
  for (Buffer* const room : {&sum, &next}) {
    if (room->bytes().size() >= count) continue;
    GW_ASSIGN(*room, Buffer::allocate(count, device));
  }
  const Shape shape = Shape::vector(static_cast<std::int64_t>(count / size_of(kind.payload)));
  const ReduceOp op = kind.exchange == Exchange::kAllReduceMax ? ReduceOp::kMax : ReduceOp::kSum;
  for (std::size_t rank = 0; rank < payloads.size(); ++rank) {
    if (payloads[rank].size() != count || count % size_of(kind.payload) != 0) {
      return {Code::kCorruptPayload, format("rank %zu's payload has %zu bytes where rank 0's has "
                                            "%zu (expected equal lengths, whole elements of %s)",
                                            rank, payloads[rank].size(), count,
                                            std::string(to_string(kind.payload)).c_str())};
    }
    if (count == 0) continue;
    Buffer& into = rank == 0 ? sum : next;
    GW_TRY(copy_bytes(payloads[rank], device, into.bytes().first(count), device, stream));
    if (rank == 0) continue;
    GW_TRY(reduce(op, next.tensor(shape, kind.payload), sum.tensor(shape, kind.payload), stream));
  }
  return {};
}

Result<std::unique_ptr<RoundExchange>> make_gather_round(const ExchangeContext& context,
                                                         std::vector<CodedParameter>& coders,
                                                         int round) {
  if (context.lane != nullptr) return make_gather_round_on_device(context, coders, round);
  return std::unique_ptr<RoundExchange>(std::make_unique<GatherRound>(context, coders, round));
}

}  // namespace gradwire
