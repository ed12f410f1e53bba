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

// The codings whose length is known before, and which threads can write side by side.
Status check_index_coding(const std::string& method, IndexCoding coding) {
  if (coding == IndexCoding::kU32 || coding == IndexCoding::kBitmap) return {};
  return {Code::kUnsupported, method + ": index=" + std::string(to_string(coding)) +
                                  " on a CUDA device (index=u32 or index=bitmap wanted there)"};
}

}  // namespace

Result<PairsOnDevice> PairsOnDevice::open(std::string method, const SparseOptions& options,
                                          std::size_t pairs, std::int64_t elems,
                                          const Compressor::Placement& where) {
  GW_TRY(check_index_coding(method, options.index));
  std::unique_ptr<WireFormat> format;
  if (options.values != nullptr) {
    const Shape shape = Shape::vector(static_cast<std::int64_t>(pairs));
    GW_ASSIGN(format, options.values->open_slices(shape, where));
  }
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  PairsOnDevice all(std::move(method), std::move(format), std::move(verdict), where);
  const auto ranks = static_cast<std::size_t>(where.size);
  all.index_ = options.index;
  all.pairs_ = pairs;
  all.elems_ = elems;
  all.index_bytes_ = most_index_bytes(options.index, pairs, static_cast<std::size_t>(elems));
  all.value_bytes_ =
      all.exact() ? pairs * sizeof(float) : all.format_->bytes(static_cast<std::int64_t>(pairs), 0);
  const std::size_t starts = ranks * static_cast<std::size_t>(tiles_of(elems) + 1);
  GW_ASSIGN(all.starts_, Buffer::allocate(starts * sizeof(std::uint32_t), where.device));
  if (options.index == IndexCoding::kBitmap) {
    GW_ASSIGN(all.indices_, Buffer::allocate(ranks * pairs * sizeof(std::uint32_t), where.device));
  }
  if (!all.exact()) {
    GW_ASSIGN(all.values_, Buffer::allocate(ranks * pairs * sizeof(float), where.device));
  }
  all.lists_.resize(ranks);
  return Result<PairsOnDevice>(std::move(all));
}

PairTarget PairsOnDevice::target(ByteSpan payload, const Scratch& values) const {
  std::byte* const at = payload.data();
  PairTarget to{};
  (index_ == IndexCoding::kBitmap ? to.bitmap : to.indices) = at;
  to.values = exact() ? at + index_bytes_ : values.as<std::byte>();
  to.in_words = starts_at(to.indices, 4) && starts_at(to.values, 4);
  return to;
}

Status PairsOnDevice::code_values(const Scratch& values, std::uint64_t step, ByteSpan payload,
                                  const Stream& stream) {
  if (exact()) return {};
  const ConstTensorView chosen(values.as<std::byte>(),
                               Shape::vector(static_cast<std::int64_t>(pairs_)), DType::kF32,
                               where_.device);
  const Slice slice{step, where_.tensor, where_.rank, 0, 0};
  const ByteSpan to = payload.subspan(index_bytes_, value_bytes_);
  GW_ASSIGN([[maybe_unused]] const std::size_t wrote, format_->pack(chosen, slice, to, stream));
  return {};
}

std::uint32_t* PairsOnDevice::starts_of(std::size_t rank) const {
  auto* const all = reinterpret_cast<std::uint32_t*>(starts_.bytes().data());
  return all + rank * static_cast<std::size_t>(tiles_of(elems_) + 1);
}

Status PairsOnDevice::absorb(std::span<const ConstByteSpan> payloads, std::uint64_t step,
                             const Stream& stream) {
  absorbed_ = false;
  if (payloads.size() != lists_.size()) {
    return {Code::kInvalidArgument,
            method_ + format(": %zu payloads (%d ranks)", payloads.size(), where_.size)};
  }
  const OnDevice here(where_.device);
  GW_TRY(here.status());
  in_words_ = true;
  for (std::size_t r = 0; r < payloads.size(); ++r) {
    const Status status = absorb_one(r, payloads[r], step, stream);
    if (!status.ok()) return status.with_context(method_ + format(": payload of rank %zu", r));
  }
  absorbed_ = true;
  return {};
}

Status PairsOnDevice::absorb_one(std::size_t rank, ConstByteSpan payload, std::uint64_t step,
                                 const Stream& stream) {
  GW_TRY(check_length("pairs", payload.size(), bytes()));
  if (pairs_ == 0) return {};
  PairList& list = lists_[rank];
  list = {payload.data(), payload.data() + index_bytes_, starts_of(rank)};
  GW_TRY(verdict_.clear(stream));
  if (index_ == IndexCoding::kBitmap) {
    auto* const indices = reinterpret_cast<std::uint32_t*>(indices_.bytes().data()) + rank * pairs_;
    list.indices = reinterpret_cast<const std::byte*>(indices);
    GW_TRY(read_bitmap(payload.first(index_bytes_), starts_of(rank), indices, stream));
  } else {
    const auto pairs = static_cast<std::int64_t>(pairs_);
    const PairStarts kernel{
        list.indices,    pairs,          elems_, tiles_of(elems_), starts_at(list.indices, 4),
        starts_of(rank), verdict_.word()};
    GW_TRY(launch("pairs: indices", kernel, blocks_for(pairs + 1, PairStarts::kThreads), stream));
  }
  if (!exact()) {
    const TensorView into(values_.bytes().data() + rank * pairs_ * sizeof(float),
                          Shape::vector(static_cast<std::int64_t>(pairs_)), DType::kF32,
                          where_.device);
    const Slice slice{step, where_.tensor, static_cast<int>(rank), 0, 0};
    GW_TRY(format_->unpack(payload.subspan(index_bytes_), slice, into, stream));
    list.values = into.data();
  }
  in_words_ = in_words_ && starts_at(list.indices, 4) && starts_at(list.values, 4);
  GW_ASSIGN(const Finding finding, verdict_.read(stream));
  return finding.kind == 0 ? Status() : corrupt(finding);
}

Status PairsOnDevice::read_bitmap(ConstByteSpan bits, std::uint32_t* starts, std::uint32_t* indices,
                                  const Stream& stream) {
  const std::int64_t tiles = tiles_of(elems_);
  const std::int64_t blocks = std::min(tiles, kMostBlocks);
  const auto pairs = static_cast<std::int64_t>(pairs_);
  std::uint64_t* const word = verdict_.word();
  GW_TRY(launch("pairs: bits", BitmapCounts{bits.data(), elems_, tiles, starts, word}, blocks,
                stream));
  GW_TRY(launch("pairs: starts", BitmapStarts{tiles, pairs, starts, word}, 1, stream));
  return launch("pairs: places", BitmapIndices{bits.data(), elems_, tiles, pairs, starts, indices},
                blocks, stream);
}

Status PairsOnDevice::corrupt(Finding finding) const {
  const auto place = static_cast<unsigned long long>(finding.place);
  switch (finding.kind) {
    case kPairIndex:
      return {Code::kCorruptPayload,
              format("the index at place %llu does not ascend, or is above %lld", place,
                     static_cast<long long>(elems_ - 1))};
    case kBitmapCount:
      return {Code::kCorruptPayload, format("a bitmap of other than %zu bits", pairs_)};
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
