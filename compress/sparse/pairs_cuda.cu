// Pairs on a device: what coders of sparse methods share there.
#include <algorithm>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/cuda/device_contract.h"
#include "compress/sparse/pairs_on_device.h"
#include "device/ops.h"

namespace gradwire::cuda {
namespace {

std::int64_t tiles_of(std::int64_t elems) { return blocks_for(elems, kSelectTile); }

}  // namespace

// The codings whose length is known before, and which threads can write side by side.
Status check_device_coding(const std::string& method, IndexCoding coding) {
  if (coding == IndexCoding::kU32 || coding == IndexCoding::kBitmap) return {};
  return {Code::kUnsupported, method + ": index=" + std::string(to_string(coding)) +
                                  " on a CUDA device (expected index=u32 or index=bitmap there)"};
}

Result<PairsOnDevice> PairsOnDevice::open(std::string method, const SparseOptions& options,
                                          std::size_t most, bool counted, std::int64_t elems,
                                          const Compressor::Placement& where) {
  GW_TRY(check_device_coding(method, options.index));
  std::unique_ptr<WireFormat> format;
  if (options.values != nullptr) {
    const Shape shape = Shape::vector(static_cast<std::int64_t>(most));
    GW_ASSIGN(format, options.values->open_slices(shape, where));
  }
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  PairsOnDevice all(std::move(method), std::move(format), std::move(verdict), where);
  const auto ranks = static_cast<std::size_t>(where.size);
  all.index_ = options.index;
  all.most_ = most;
  all.counted_ = counted;
  all.elems_ = elems;
  const std::size_t starts = ranks * static_cast<std::size_t>(tiles_of(elems) + 1);
  GW_ASSIGN(all.starts_, Buffer::allocate(starts * sizeof(std::uint32_t), where.device));
  if (counted) {
    GW_ASSIGN(all.counts_,
              Buffer::allocate((ranks + 1) * sizeof(std::uint32_t), {MemorySpace::kPinnedHost, 0}));
  }
  all.lists_.resize(ranks);
  return Result<PairsOnDevice>(std::move(all));
}

std::size_t PairsOnDevice::index_bytes(std::size_t pairs) const {
  return pairs == 0 ? 0 : most_index_bytes(index_, pairs, static_cast<std::size_t>(elems_));
}
std::size_t PairsOnDevice::value_bytes(std::size_t pairs) const {
  return exact() ? pairs * sizeof(float) : format_->bytes(static_cast<std::int64_t>(pairs), 0);
}
std::size_t PairsOnDevice::bytes(std::size_t pairs) const {
  return head() + index_bytes(pairs) + value_bytes(pairs);
}

PairTarget PairsOnDevice::target(std::size_t pairs, ByteSpan payload, const Scratch& values) const {
  if (pairs == 0) return {};
  std::byte* const at = payload.data() + head();
  PairTarget to{};
  (index_ == IndexCoding::kBitmap ? to.bitmap : to.indices) = at;
  to.values = exact() ? at + index_bytes(pairs) : values.as<std::byte>();
  to.in_words = starts_at(to.indices, 4) && starts_at(to.values, 4);
  return to;
}

Status PairsOnDevice::complete(std::size_t pairs, const Scratch& values, std::uint64_t step,
                               ByteSpan payload, const Stream& stream) {
  if (counted_) {
    const ByteSpan word = counts_.bytes().subspan(lists_.size() * sizeof(std::uint32_t));
    store_word(word.data(), 0, static_cast<std::uint32_t>(pairs));
    GW_TRY(copy_bytes(word, counts_.device(), payload.first(head()), where_.device, stream));
  }
  if (exact() || pairs == 0) return {};
  const ConstTensorView chosen(values.as<std::byte>(),
                               Shape::vector(static_cast<std::int64_t>(pairs)), DType::kF32,
                               where_.device);
  const ByteSpan to = payload.subspan(head() + index_bytes(pairs), value_bytes(pairs));
  GW_ASSIGN([[maybe_unused]] const std::size_t wrote,
            format_->pack(chosen, slice_of(where_.rank, step), to, stream));
  return {};
}

void PairsOnDevice::forget() {
  absorbed_ = false;
  rooms_.clear();
}

std::uint32_t* PairsOnDevice::starts_of(std::size_t rank) const {
  auto* const all = reinterpret_cast<std::uint32_t*>(starts_.bytes().data());
  return all + rank * static_cast<std::size_t>(tiles_of(elems_) + 1);
}

Status PairsOnDevice::absorb(std::span<const ConstByteSpan> payloads, std::uint64_t step,
                             const Stream& stream) {
  forget();
  if (payloads.size() != lists_.size()) {
    return {Code::kInvalidArgument,
            method_ + format(": %zu payloads (%d ranks)", payloads.size(), where_.size)};
  }
  const OnDevice here(where_.device);
  GW_TRY(here.status());
  GW_ASSIGN(const std::vector<std::size_t> counts, read_counts(payloads, stream));
  in_words_ = true;
  for (std::size_t r = 0; r < payloads.size(); ++r) {
    const Status status = absorb_one(r, counts[r], payloads[r], step, stream);
    if (!status.ok()) return status.with_context(method_ + format(": payload of rank %zu", r));
  }
  own_pairs_ = counts[static_cast<std::size_t>(where_.rank)];
  absorbed_ = true;
  return {};
}

// Of pairs in each payload.
Result<std::vector<std::size_t>> PairsOnDevice::read_counts(std::span<const ConstByteSpan> payloads,
                                                            const Stream& stream) {
  std::vector<std::size_t> counts(payloads.size(), most_);
  if (!counted_) return counts;
  const auto named = [this](std::size_t r, std::string what) {
    return Status(Code::kCorruptPayload, method_ + format(": payload of rank %zu: ", r) + what);
  };
  for (std::size_t r = 0; r < payloads.size(); ++r) {
    if (payloads[r].size() < head()) {
      return named(r, format("%zu bytes (expected a count of %zu)", payloads[r].size(), head()));
    }
    GW_TRY(copy_bytes(payloads[r].first(head()), where_.device,
                      counts_.bytes().subspan(r * head(), head()), counts_.device(), stream));
  }
  GW_TRY(synchronize({where_.device, stream.native}));
  for (std::size_t r = 0; r < payloads.size(); ++r) {
    counts[r] = load_word(counts_.bytes().data(), static_cast<std::int64_t>(r));
    if (counts[r] <= most_) continue;
    return named(r, format("%zu pairs (expected at most %zu)", counts[r], most_));
  }
  return counts;
}

Status PairsOnDevice::absorb_one(std::size_t rank, std::size_t pairs, ConstByteSpan payload,
                                 std::uint64_t step, const Stream& stream) {
  GW_TRY(check_length("pairs", payload.size(), bytes(pairs)));
  PairList& list = lists_[rank];
  list = {};
  if (pairs == 0) return {};
  const auto count = static_cast<std::int64_t>(pairs);
  const ConstByteSpan indices = payload.subspan(head(), index_bytes(pairs));
  const ConstByteSpan values = payload.subspan(head() + indices.size());
  list = {indices.data(), values.data(), starts_of(rank)};
  const bool bitmap = index_ == IndexCoding::kBitmap;
  GW_ASSIGN(Scratch room,
            Scratch::allocate(((bitmap ? 1 : 0) + (exact() ? 0 : 1)) * pairs * 4, stream));
  GW_TRY(verdict_.clear(stream));
  if (bitmap) {
    list.indices = room.as<std::byte>();
    GW_TRY(read_bitmap(pairs, indices, starts_of(rank), room.as<std::uint32_t>(), stream));
  } else {
    const PairStarts kernel{
        list.indices,    count,          elems_, tiles_of(elems_), starts_at(list.indices, 4),
        starts_of(rank), verdict_.word()};
    GW_TRY(launch("pairs: indices", kernel, blocks_for(count + 1, PairStarts::kThreads), stream));
  }
  if (!exact()) {
    std::byte* const decoded = room.as<std::byte>(bitmap ? pairs * 4 : 0);
    const TensorView into(decoded, Shape::vector(count), DType::kF32, where_.device);
    GW_TRY(format_->unpack(values, slice_of(static_cast<int>(rank), step), into, stream));
    list.values = decoded;
  }
  rooms_.push_back(std::move(room));
  in_words_ = in_words_ && starts_at(list.indices, 4) && starts_at(list.values, 4);
  GW_ASSIGN(const Finding finding, verdict_.read(stream));
  return finding.kind == 0 ? Status() : corrupt(finding, pairs);
}

Status PairsOnDevice::read_bitmap(std::size_t pairs, ConstByteSpan bits, std::uint32_t* starts,
                                  std::uint32_t* indices, const Stream& stream) {
  const std::int64_t tiles = tiles_of(elems_);
  const std::int64_t blocks = std::min(tiles, kMostBlocks);
  const auto count = static_cast<std::int64_t>(pairs);
  std::uint64_t* const word = verdict_.word();
  GW_TRY(launch("pairs: bits", BitmapCounts{bits.data(), elems_, tiles, starts, word}, blocks,
                stream));
  GW_TRY(launch("pairs: starts", BitmapStarts{tiles, count, starts, word}, 1, stream));
  return launch("pairs: places", BitmapIndices{bits.data(), elems_, tiles, count, starts, indices},
                blocks, stream);
}

Status PairsOnDevice::corrupt(Finding finding, std::size_t pairs) const {
  const auto place = static_cast<unsigned long long>(finding.place);
  switch (finding.kind) {
    case kPairIndex:
      return {Code::kCorruptPayload,
              format("the index at place %llu does not ascend, or is above %lld", place,
                     static_cast<long long>(elems_ - 1))};
    case kBitmapCount:
      return {Code::kCorruptPayload, format("a bitmap of other than %zu bits", pairs)};
    default: return {Code::kCorruptPayload, "bits behind the last element are set"};
  }
}

Status PairsOnDevice::finish(TensorView mean, TensorView own, const Stream& stream) {
  GW_TRY(check_tensor_on(where_.device, method_ + ": mean", mean, elems_, DType::kF32));
  if (!absorbed_) return {Code::kInvalidArgument, method_ + ": finish() before absorb()"};
  if (elems_ == 0) return {};
  const OnDevice here(where_.device);
  GW_TRY(here.status());
  const std::span<const PairList> all(lists_);
  if (!own.empty()) {
    GW_TRY(check_tensor_on(where_.device, method_ + ": own", own, elems_, DType::kF32));
    const auto mine = all.subspan(static_cast<std::size_t>(where_.rank), 1);
    GW_TRY(put_sum(mine, 1, own, stream));
  }
  return put_sum(all, static_cast<float>(1.0 / where_.size), mean, stream);
}

Status PairsOnDevice::put_sum(std::span<const PairList> lists, float factor, TensorView dst,
                              const Stream& stream) const {
  constexpr std::size_t kMost = PairSums::kMostPayloads;
  const std::int64_t tiles = tiles_of(elems_);
  for (std::size_t first = 0; first < lists.size(); first += kMost) {
    const auto some = lists.subspan(first, std::min(kMost, lists.size() - first));
    PairSums kernel{.payloads = {},
                    .number = static_cast<int>(some.size()),
                    .first = first == 0,
                    .last = first + some.size() == lists.size(),
                    .in_words = in_words_,
                    .packed = starts_at(dst.data(), 16),
                    .factor = factor,
                    .dst = elements<float>(dst).data(),
                    .elems = elems_,
                    .tiles = tiles};
    std::copy(some.begin(), some.end(), kernel.payloads);
    GW_TRY(launch("pairs: sums", kernel, std::min(tiles, kMostBlocks), stream));
  }
  return {};
}

}  // namespace gradwire::cuda
