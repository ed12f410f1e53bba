// block_sparse on a device.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "compress/block_sparse/block_device.h"
#include "compress/block_sparse/block_thread_kernels.h"
#include "compress/contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/sparse/pairs_on_device.h"
#include "device/ops.h"

namespace gradwire::cuda {
namespace {

constexpr std::size_t kBlockCountBytes = 4;

// What one rank sent, checked.
struct ReceivedBlocks {
  Scratch numbers;
  std::size_t count;
  const std::byte* values;  // their elements
  Scratch decoded;          // where `values` points, with a second stage
};

class BlockDeviceCoder final : public PlacedCoder {
 public:
  BlockDeviceCoder(const BlockOptions& options, const Shape& shape,
                   const Compressor::Placement& where, std::unique_ptr<WireFormat> format,
                   Buffer words, Verdict verdict)
      : PlacedCoder("block_sparse", shape.elems(), where.device, DType::kF32),
        size_(options.block),
        coding_(options.pairs.index),
        blocks_(blocks_for(shape.elems(), options.block)),
        where_(where),
        format_(std::move(format)),
        words_(std::move(words)),
        verdict_(std::move(verdict)) {}

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round(method_, round, 1));
    const OnDevice here(device_);
    GW_TRY(here.status());
    // Bits of blocks in whole tiles, starts of tiles and the end, and the blocks' numbers.
    const std::size_t bits_bytes = static_cast<std::size_t>(tiles()) * (kSelectTile / 8);
    const std::size_t starts_bytes = static_cast<std::size_t>(tiles() + 1) * 4;
    GW_ASSIGN(const Scratch room,
              Scratch::allocate(bits_bytes + starts_bytes + static_cast<std::size_t>(blocks_) * 4,
                                stream));
    std::size_t count = 0;
    std::size_t elems = 0;
    if (elems_ > 0) {
      GW_TRY(find(room, bits_bytes, stream));
      count = load_word(words_.bytes().data(), 0);
      const bool last = (load_word(words_.bytes().data(), 1) >> ((blocks_ - 1) % 32) & 1u) != 0;
      elems = elems_of(count, last);
    }
    const std::size_t front = kBlockCountBytes + index_bytes(count);
    GW_TRY(check_room(method_ + ": payload", payload.size(), front + value_bytes(elems)));
    store_word(words_.bytes().data(), 0, static_cast<std::uint32_t>(count));
    GW_TRY(copy_bytes(words_.bytes().first(kBlockCountBytes), words_.device(),
                      payload.first(kBlockCountBytes), device_, stream));
    if (count == 0) return front;
    auto* const numbers = room.as<std::uint32_t>(bits_bytes + starts_bytes);
    GW_TRY(put_indices(room, bits_bytes, numbers, count,
                       payload.subspan(kBlockCountBytes, index_bytes(count)), stream));
    const ByteSpan values = payload.subspan(front, value_bytes(elems));
    GW_TRY(put_values(numbers, elems, values, stream));
    return front + values.size();
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_round(method_, round, 1));
    forget();
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              method_ + format(": %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    const OnDevice here(device_);
    GW_TRY(here.status());
    in_words_ = true;
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      const Status status = read(payloads[r], static_cast<int>(r), stream);
      if (!status.ok()) {
        return status.with_context(method_ + format(": payload of rank %zu", r));
      }
    }
    absorbed_ = true;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check("mean", mean));
    if (!own.empty()) GW_TRY(check("own", own));
    if (!absorbed_) return {Code::kInvalidArgument, method_ + ": finish() before absorb()"};
    if (elems_ == 0) return {};
    const OnDevice here(device_);
    GW_TRY(here.status());
    const std::size_t table = static_cast<std::size_t>(blocks_) * received_.size() * 4;
    GW_ASSIGN(const Scratch room,
              Scratch::allocate(received_.size() * sizeof(std::byte*) + table, stream));
    auto* const pointers = room.as<const std::byte*>();
    auto* const places = room.as<std::uint32_t>(received_.size() * sizeof(std::byte*));
    GW_CUDA(cudaMemsetAsync(places, 0xff, table, native(stream)));
    auto* const here_pointers = reinterpret_cast<const std::byte**>(words_.bytes().data());
    for (std::size_t r = 0; r < received_.size(); ++r) {
      const ReceivedBlocks& from = received_[r];
      here_pointers[r] = from.values;
      const auto count = static_cast<std::int64_t>(from.count);
      const BlockPlacesOf kernel{from.numbers.as<std::uint32_t>(), count,
                                 places + static_cast<std::int64_t>(r) * blocks_};
      GW_TRY(launch("block_sparse: places", kernel, blocks_for(count, BlockPlacesOf::kThreads),
                    stream));
    }
    const std::size_t bytes = received_.size() * sizeof(std::byte*);
    GW_TRY(copy_bytes(words_.bytes().first(bytes), words_.device(),
                      ByteSpan(room.as<std::byte>(), bytes), device_, stream));
    if (!own.empty()) {
      const std::int64_t mine = where_.rank;
      GW_TRY(add_up(pointers + mine, places + mine * blocks_, 1, 1, own, stream));
    }
    return add_up(pointers, places, where_.size, static_cast<float>(1.0 / where_.size), mean,
                  stream);
  }

 private:
  void forget() override {
    absorbed_ = false;
    received_.clear();
  }
  std::int64_t tiles() const { return blocks_for(blocks_, kSelectTile); }
  std::size_t elems_of(std::size_t count, bool last) const {
    if (count == 0) return 0;
    const auto whole = static_cast<std::int64_t>(count) * size_;
    return static_cast<std::size_t>(last ? whole - (blocks_ * size_ - elems_) : whole);
  }
  std::size_t index_bytes(std::size_t count) const {
    return count == 0 ? 0 : most_index_bytes(coding_, count, static_cast<std::size_t>(blocks_));
  }
  std::size_t value_bytes(std::size_t elems) const {
    return format_ == nullptr ? elems * sizeof(float)
                              : format_->bytes(static_cast<std::int64_t>(elems), 0);
  }
  Slice slice(int rank) const { return {step_, where_.tensor, rank, 0, 0}; }
  TensorView floats(std::byte* data, std::size_t elems) const {
    return {data, Shape::vector(static_cast<std::int64_t>(elems)), DType::kF32, device_};
  }

  // Bits of blocks and starts of tiles; how many blocks travel, and the last bits, to words_. Waits
  // for the stream.
  Status find(const Scratch& room, std::size_t bits_bytes, const Stream& stream) {
    auto* const bits = room.as<std::uint32_t>();
    auto* const starts = room.as<std::uint32_t>(bits_bytes);
    GW_CUDA(cudaMemsetAsync(bits, 0, bits_bytes, native(stream)));
    const auto* const x = reinterpret_cast<const std::uint32_t*>(grad_.data());
    const bool packed = starts_at(x, 16) && (size_ % 4 == 0 || blocks_ == 1);
    const BlockBits find{x, elems_, size_, blocks_, packed, bits};
    GW_TRY(launch("block_sparse: bits", find,
                  std::min(blocks_for(blocks_, BlockBits::kWarps), kMostBlocks), stream));
    const auto* const bytes = room.as<std::byte>();
    GW_TRY(launch("block_sparse: counts",
                  BitmapCounts{bytes, blocks_, tiles(), starts, verdict_.word()},
                  std::min(tiles(), kMostBlocks), stream));
    GW_TRY(launch("block_sparse: starts", BlockStarts{tiles(), starts}, 1, stream));
    const std::size_t last = static_cast<std::size_t>((blocks_ - 1) / 32) * 4;
    const std::size_t end = bits_bytes + static_cast<std::size_t>(tiles()) * 4;
    GW_TRY(copy_bytes({room.as<std::byte>(end), 4}, device_, words_.bytes().first(4),
                      words_.device(), stream));
    GW_TRY(copy_bytes({room.as<std::byte>(last), 4}, device_, words_.bytes().subspan(4, 4),
                      words_.device(), stream));
    return synchronize({device_, stream.native});
  }

  Status put_indices(const Scratch& room, std::size_t bits_bytes, std::uint32_t* numbers,
                     std::size_t count, ByteSpan to, const Stream& stream) {
    const BitmapIndices kernel{room.as<std::byte>(),
                               blocks_,
                               tiles(),
                               static_cast<std::int64_t>(count),
                               room.as<std::uint32_t>(bits_bytes),
                               numbers};
    GW_TRY(launch("block_sparse: numbers", kernel, std::min(tiles(), kMostBlocks), stream));
    const auto* const from = coding_ == IndexCoding::kBitmap
                                 ? room.as<std::byte>()
                                 : reinterpret_cast<const std::byte*>(numbers);
    return copy_bytes({from, to.size()}, device_, to, device_, stream);
  }

  Status put_values(const std::uint32_t* numbers, std::size_t elems, ByteSpan to,
                    const Stream& stream) {
    GW_ASSIGN(const Scratch coded,
              Scratch::allocate(format_ == nullptr ? 0 : elems * sizeof(float), stream));
    std::byte* const at = format_ == nullptr ? to.data() : coded.as<std::byte>();
    const auto count = static_cast<std::int64_t>(elems);
    const BlockValues kernel{
        reinterpret_cast<const float*>(grad_.data()), size_, numbers, count, at, starts_at(at, 4)};
    GW_TRY(launch("block_sparse: values", kernel, blocks_for(count, kEight * BlockValues::kThreads),
                  stream));
    if (format_ == nullptr) return {};
    GW_ASSIGN([[maybe_unused]] const std::size_t wrote,
              format_->pack(floats(at, elems), slice(where_.rank), to, stream));
    return {};
  }

  Status read(ConstByteSpan payload, int rank, const Stream& stream) {
    if (payload.size() < kBlockCountBytes) {
      return {Code::kCorruptPayload,
              format("%zu bytes (expected a count of %zu)", payload.size(), kBlockCountBytes)};
    }
    GW_TRY(copy_bytes(payload.first(kBlockCountBytes), device_, words_.bytes().first(4),
                      words_.device(), stream));
    GW_TRY(synchronize({device_, stream.native}));
    const std::size_t count = load_word(words_.bytes().data(), 0);
    if (static_cast<std::int64_t>(count) > blocks_) {
      return {Code::kCorruptPayload,
              format("%zu blocks (expected at most %lld)", count, static_cast<long long>(blocks_))};
    }
    payload = payload.subspan(kBlockCountBytes);
    if (payload.size() < index_bytes(count)) {
      return {Code::kCorruptPayload,
              format("%zu bytes (expected indices of %zu)", payload.size(), index_bytes(count))};
    }
    GW_ASSIGN(Scratch numbers, Scratch::allocate(count * sizeof(std::uint32_t), stream));
    if (count > 0) {
      GW_TRY(read_indices(payload.first(index_bytes(count)), count, numbers.as<std::uint32_t>(),
                          stream));
    }
    const bool last = count > 0 && load_word(words_.bytes().data(), 0) + 1 == blocks_;
    const std::size_t elems = elems_of(count, last);
    const ConstByteSpan values = payload.subspan(index_bytes(count));
    GW_TRY(check_length("values", values.size(), value_bytes(elems)));
    const std::size_t decodes = format_ == nullptr ? 0 : elems * sizeof(float);
    GW_ASSIGN(Scratch decoded, Scratch::allocate(decodes, stream));
    if (decodes > 0) {
      GW_TRY(format_->unpack(values, slice(rank), floats(decoded.as<std::byte>(), elems), stream));
    }
    const std::byte* const at = decodes > 0 ? decoded.as<std::byte>() : values.data();
    in_words_ = in_words_ && starts_at(at, 4);
    received_.push_back({std::move(numbers), count, at, std::move(decoded)});
    return {};
  }

  // Into `numbers`, checked; the last of them to words_. Waits for the stream.
  Status read_indices(ConstByteSpan indices, std::size_t count, std::uint32_t* numbers,
                      const Stream& stream) {
    GW_ASSIGN(const Scratch room,
              Scratch::allocate(static_cast<std::size_t>(tiles() + 1) * 4, stream));
    auto* const starts = room.as<std::uint32_t>();
    const auto pairs = static_cast<std::int64_t>(count);
    GW_TRY(verdict_.clear(stream));
    if (coding_ == IndexCoding::kBitmap) {
      const std::int64_t launched = std::min(tiles(), kMostBlocks);
      GW_TRY(launch("block_sparse: bits",
                    BitmapCounts{indices.data(), blocks_, tiles(), starts, verdict_.word()},
                    launched, stream));
      GW_TRY(launch("block_sparse: starts", BitmapStarts{tiles(), pairs, starts, verdict_.word()},
                    1, stream));
      GW_TRY(launch("block_sparse: numbers",
                    BitmapIndices{indices.data(), blocks_, tiles(), pairs, starts, numbers},
                    launched, stream));
    } else {
      auto* const to = reinterpret_cast<std::byte*>(numbers);
      GW_TRY(copy_bytes(indices, device_, {to, indices.size()}, device_, stream));
      const PairStarts kernel{to, pairs, blocks_, tiles(), true, starts, verdict_.word()};
      GW_TRY(launch("block_sparse: indices", kernel, blocks_for(pairs + 1, PairStarts::kThreads),
                    stream));
    }
    const auto* const end = reinterpret_cast<const std::byte*>(numbers + count - 1);
    GW_TRY(copy_bytes({end, 4}, device_, words_.bytes().first(4), words_.device(), stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind == 0) return {};
    return {Code::kCorruptPayload,
            format("its block numbers do not ascend, exceed %lld, or are not %zu in number",
                   static_cast<long long>(blocks_ - 1), count)};
  }

  Status add_up(const std::byte* const* values, const std::uint32_t* places, int number,
                float factor, TensorView dst, const Stream& stream) const {
    const BlockSums kernel{values,    places,
                           number,    elems_,
                           size_,     blocks_,
                           in_words_, starts_at(dst.data(), 16),
                           factor,    reinterpret_cast<float*>(dst.data())};
    return launch("block_sparse: sums", kernel, blocks_for(elems_, kEight * BlockSums::kThreads),
                  stream);
  }

  std::int64_t size_;
  IndexCoding coding_;
  std::int64_t blocks_;
  Compressor::Placement where_;
  std::unique_ptr<WireFormat> format_;  // null: values as they are
  Buffer words_;                        // pinned: of counts, and of each rank a pointer
  Verdict verdict_;
  std::vector<ReceivedBlocks> received_;
  bool in_words_ = true;
  bool absorbed_ = false;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_block_coder(const BlockOptions& options, const Shape& shape,
                                                const Compressor::Placement& where) {
  GW_TRY(check_device_placement("block_sparse", where));
  GW_TRY(check_device_coding("block_sparse", options.pairs.index));
  std::unique_ptr<WireFormat> format;
  if (options.pairs.values != nullptr) {
    GW_ASSIGN(format, options.pairs.values->open_slices(Shape::vector(shape.elems()), where));
  }
  const std::size_t words = static_cast<std::size_t>(where.size + 1) * sizeof(std::byte*);
  GW_ASSIGN(Buffer pinned, Buffer::allocate(words, {MemorySpace::kPinnedHost, 0}));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return std::unique_ptr<Coder>(std::make_unique<BlockDeviceCoder>(
      options, shape, where, std::move(format), std::move(pinned), std::move(verdict)));
}

}  // namespace gradwire::cuda
