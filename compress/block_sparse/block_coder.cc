#include "compress/block_sparse/block_coder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/block_sparse/block_kernels.h"
#include "compress/contract.h"
#include "compress/little_endian.h"

namespace gradwire {
namespace {

constexpr std::size_t kCountBytes = 4;

// What one rank sent, checked.
template <typename T>
struct Blocks {
  std::vector<std::uint32_t> numbers;
  ConstByteSpan values;    // their elements, at any byte
  std::vector<T> decoded;  // where `values` points, with a second stage
};

template <typename T>
class BlockCoder final : public Coder {
 public:
  BlockCoder(const BlockOptions& options, const Shape& shape, std::unique_ptr<WireFormat> format,
             const Compressor::Placement& where)
      : block_(static_cast<std::size_t>(options.block)),
        coding_(options.pairs.index),
        elems_(static_cast<std::size_t>(shape.elems())),
        blocks_((elems_ + block_ - 1) / block_),
        format_(std::move(format)),
        where_(where) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    GW_TRY(
        check_tensor("block_sparse: grad", grad, static_cast<std::int64_t>(elems_), where_.dtype));
    grad_ = grad;
    step_ = step;
    absorbed_ = false;
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round("block_sparse", round, 1));
    const auto x = elems_ == 0 ? std::span<const T>() : elements<T>(grad_);
    cpu::find_blocks(std::as_bytes(x), block_ * sizeof(T), sent_);
    const std::size_t elems = elems_of(sent_);
    GW_TRY(check_room(
        "block_sparse: payload", payload.size(),
        kCountBytes + most_index_bytes(coding_, sent_.size(), blocks_) + value_bytes(elems)));
    store_le(payload.data(), static_cast<std::uint32_t>(sent_.size()));
    const std::size_t front =
        kCountBytes + encode_indices(coding_, sent_, blocks_, payload.subspan(kCountBytes));
    const ByteSpan values = payload.subspan(front, value_bytes(elems));
    if (format_ == nullptr) {
      copy_blocks(x, values.data());
      return front + values.size();
    }
    coded_.resize(elems);
    copy_blocks(x, reinterpret_cast<std::byte*>(coded_.data()));
    if (elems == 0) return front;
    GW_ASSIGN(const std::size_t wrote,
              format_->pack(view_of(std::span<T>(coded_)), slice(where_.rank), values, stream));
    return front + wrote;
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_round("block_sparse", round, 1));
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              format("block_sparse: %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    received_.resize(payloads.size());
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      const Status status = read(payloads[r], static_cast<int>(r), received_[r], stream);
      if (!status.ok()) {
        return status.with_context(format("block_sparse: payload of rank %zu", r));
      }
    }
    absorbed_ = true;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream&) override {
    const auto elems = static_cast<std::int64_t>(elems_);
    GW_TRY(check_tensor("block_sparse: mean", mean, elems, where_.dtype));
    if (!own.empty()) GW_TRY(check_tensor("block_sparse: own", own, elems, where_.dtype));
    if (!absorbed_) return {Code::kInvalidArgument, "block_sparse: finish() before absorb()"};
    if (elems_ == 0) return {};
    const std::span<const Blocks<T>> all(received_);
    if (!own.empty()) {
      add_up(all.subspan(static_cast<std::size_t>(where_.rank), 1), T{1}, elements<T>(own));
    }
    add_up(all, static_cast<T>(1.0 / where_.size), elements<T>(mean));
    return {};
  }

  std::vector<NamedTensor> state() override { return {}; }

 private:
  Slice slice(int rank) const { return {step_, where_.tensor, rank, 0, 0}; }

  std::size_t length_of(std::size_t number) const {
    return std::min(block_, elems_ - number * block_);
  }
  std::size_t elems_of(std::span<const std::uint32_t> numbers) const {
    if (numbers.empty()) return 0;
    return (numbers.size() - 1) * block_ + length_of(numbers.back());  // the last may be shorter
  }
  std::size_t value_bytes(std::size_t elems) const {
    return format_ == nullptr ? elems * sizeof(T)
                              : format_->bytes(static_cast<std::int64_t>(elems), 0);
  }

  void copy_blocks(std::span<const T> x, std::byte* to) const {
    for (const std::uint32_t number : sent_) {
      const std::size_t bytes = length_of(number) * sizeof(T);
      std::memcpy(to, x.data() + std::size_t{number} * block_, bytes);
      to += bytes;
    }
  }

  Status read(ConstByteSpan payload, int rank, Blocks<T>& into, const Stream& stream) {
    if (payload.size() < kCountBytes) {
      return {Code::kCorruptPayload,
              format("%zu bytes (expected a count of %zu)", payload.size(), kCountBytes)};
    }
    const std::size_t count = load_le<std::uint32_t>(payload.data());
    if (count > blocks_) {
      return {Code::kCorruptPayload, format("%zu blocks (expected at most %zu)", count, blocks_)};
    }
    into.numbers.resize(count);
    payload = payload.subspan(kCountBytes);
    GW_ASSIGN(const std::size_t front, decode_indices(coding_, payload, blocks_, into.numbers));
    into.values = payload.subspan(front);
    const std::size_t elems = elems_of(into.numbers);
    GW_TRY(check_length("values", into.values.size(), value_bytes(elems)));
    if (format_ == nullptr || elems == 0) return {};
    into.decoded.resize(elems);
    const std::span<T> decoded(into.decoded);
    GW_TRY(format_->unpack(into.values, slice(rank), view_of(decoded), stream));
    into.values = std::as_bytes(decoded);
    return {};
  }

  // dst = factor * (the sum of `all`, in their order). One pass over dst.
  void add_up(std::span<const Blocks<T>> all, T factor, std::span<T> dst) {
    next_.assign(all.size(), 0);
    for (std::size_t number = 0; number < blocks_; ++number) {
      const std::span<T> block = dst.subspan(number * block_, length_of(number));
      bool touched = false;
      for (std::size_t r = 0; r < all.size(); ++r) {
        std::size_t& next = next_[r];
        if (next == all[r].numbers.size() || all[r].numbers[next] != number) continue;
        const std::byte* values = all[r].values.data() + next * block_ * sizeof(T);
        ++next;
        if (!touched) {
          std::memcpy(block.data(), values, block.size_bytes());
        } else {
          for (std::size_t i = 0; i < block.size(); ++i) block[i] += load_le<T>(values, i);
        }
        touched = true;
      }
      if (!touched) {
        std::fill(block.begin(), block.end(), T{0});
      } else if (factor != T{1}) {
        for (T& value : block) value *= factor;
      }
    }
  }

  std::size_t block_;
  IndexCoding coding_;
  std::size_t elems_;
  std::size_t blocks_;
  std::unique_ptr<WireFormat> format_;  // null: values as they are
  Compressor::Placement where_;
  ConstTensorView grad_;
  std::uint64_t step_ = 0;
  std::vector<std::uint32_t> sent_;
  std::vector<T> coded_;  // the elements that the second stage packs
  std::vector<Blocks<T>> received_;
  bool absorbed_ = false;
  std::vector<std::size_t> next_;
};

}  // namespace

std::size_t most_block_bytes(const BlockOptions& options, std::int64_t elems, DType dtype) {
  const auto n = static_cast<std::size_t>(elems);
  const auto block = static_cast<std::size_t>(options.block);
  const std::size_t blocks = (n + block - 1) / block;
  return kCountBytes + most_index_bytes_up_to(options.pairs.index, blocks, blocks) +
         sparse_value_bytes(options.pairs, n, dtype);
}

Result<std::unique_ptr<Coder>> make_block_coder(const BlockOptions& options, const Shape& shape,
                                                const Compressor::Placement& where) {
  std::unique_ptr<WireFormat> format;
  if (options.pairs.values != nullptr) {
    GW_ASSIGN(format, options.pairs.values->open_slices(Shape::vector(shape.elems()), where));
  }
  if (where.dtype == DType::kF64) {
    return std::unique_ptr<Coder>(
        std::make_unique<BlockCoder<double>>(options, shape, std::move(format), where));
  }
  return std::unique_ptr<Coder>(
      std::make_unique<BlockCoder<float>>(options, shape, std::move(format), where));
}

}  // namespace gradwire
