#include "compress/sparse/pair_payloads.h"

#include <cstring>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/little_endian.h"

namespace gradwire {

template <typename T>
Result<PairPayloads<T>> PairPayloads<T>::open(std::string method, const SparseOptions& options,
                                              std::size_t most, bool counted, std::int64_t elems,
                                              const Compressor::Placement& where) {
  PairPayloads all;
  all.method_ = std::move(method);
  all.exact_ = options.values == nullptr;
  all.most_ = most;
  all.counted_ = counted;
  all.elems_ = elems;
  all.where_ = where;
  if (!options.plain()) {
    GW_ASSIGN(all.coding_, SparseCoding<T>::open(options, most, elems, where));
  }
  return all;
}

template <typename T>
Result<std::size_t> PairPayloads<T>::write(std::span<const std::uint32_t> index,
                                           std::span<const T> value, std::uint64_t step,
                                           ByteSpan payload) {
  const std::size_t head = counted_ ? kCountBytes : 0;
  GW_TRY(check_room(method_ + ": payload", payload.size(), head));
  if (counted_) store_le(payload.data(), static_cast<std::uint32_t>(index.size()));
  const ByteSpan rest = payload.subspan(head);
  if (coding_) {
    GW_ASSIGN(const std::size_t wrote, coding_->encode(index, value, step, rest));
    return head + wrote;
  }
  const std::size_t bytes = index.size() * kPairBytes;
  GW_TRY(check_room(method_ + ": payload", payload.size(), head + bytes));
  if (!index.empty()) {
    std::memcpy(rest.data(), index.data(), index.size_bytes());
    std::memcpy(rest.data() + index.size_bytes(), value.data(), value.size_bytes());
  }
  return head + bytes;
}

template <typename T>
Status PairPayloads<T>::absorb(std::span<const ConstByteSpan> payloads, std::uint64_t step) {
  pairs_.clear();
  if (payloads.size() != static_cast<std::size_t>(where_.size)) {
    return {Code::kInvalidArgument,
            method_ + format(": %zu payloads (%d ranks)", payloads.size(), where_.size)};
  }
  pairs_.resize(payloads.size());
  plain_.resize(coding_ ? payloads.size() : 0);
  for (std::size_t r = 0; r < payloads.size(); ++r) {
    const Status status = absorb_one(r, payloads[r], step);
    if (status.ok()) continue;
    pairs_.clear();
    return status.with_context(method_ + format(": payload of rank %zu", r));
  }
  return {};
}

template <typename T>
Result<std::size_t> PairPayloads<T>::read_count(ConstByteSpan& payload) const {
  if (!counted_) return most_;
  if (payload.size() < kCountBytes) {
    return Status(Code::kCorruptPayload,
                  format("%zu bytes (expected a count of %zu)", payload.size(), kCountBytes));
  }
  const std::size_t count = load_le<std::uint32_t>(payload.data());
  if (count > most_) {
    return Status(Code::kCorruptPayload, format("%zu pairs (expected at most %zu)", count, most_));
  }
  payload = payload.subspan(kCountBytes);
  return count;
}

template <typename T>
Status PairPayloads<T>::absorb_one(std::size_t rank, ConstByteSpan payload, std::uint64_t step) {
  GW_ASSIGN(const std::size_t count, read_count(payload));
  if (!coding_) {
    GW_TRY(check_length("pairs", payload.size(), count * kPairBytes));
    GW_TRY(cpu::topk_check_indices(payload, count, static_cast<std::size_t>(elems_)));
    pairs_[rank] = payload;
    return {};
  }
  // Pairs become what a plain payload has, so that one kernel adds up either.
  GW_TRY(coding_->decode(payload, count, static_cast<int>(rank), step, decoded_));
  std::vector<std::byte>& pairs = plain_[rank];
  pairs.resize(count * kPairBytes);
  pairs_[rank] = pairs;
  if (count == 0) return {};
  std::memcpy(pairs.data(), decoded_.index.data(), count * kTopkIndexBytes);
  std::memcpy(pairs.data() + count * kTopkIndexBytes, decoded_.value.data(), count * sizeof(T));
  return {};
}

template <typename T>
Status PairPayloads<T>::finish(TensorView mean, TensorView own) {
  GW_TRY(check_tensor(method_ + ": mean", mean, elems_, where_.dtype));
  if (pairs_.empty()) return {Code::kInvalidArgument, method_ + ": finish() before absorb()"};
  if (elems_ == 0) return {};
  const std::span<const ConstByteSpan> all(pairs_);
  if (!own.empty()) {
    GW_TRY(check_tensor(method_ + ": own", own, elems_, where_.dtype));
    const auto mine = all.subspan(static_cast<std::size_t>(where_.rank), 1);
    cpu::topk_decode<T>(mine, T{1}, elements<T>(own));
  }
  cpu::topk_decode<T>(all, static_cast<T>(1.0 / where_.size), elements<T>(mean));
  return {};
}

template class PairPayloads<float>;
template class PairPayloads<double>;

}  // namespace gradwire
