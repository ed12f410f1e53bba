#include "compress/block_feedback.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "compress/contract.h"
#include "compress/corrected.h"
#include "compress/residual_writer.h"

namespace gradwire {
namespace {

constexpr std::int64_t kLeastBlock = 1024;  // elements: of fp32 a block and its decoding take 8 KB
constexpr std::int64_t kMostSeam = 16384;

template <typename T>
class BlockPacker {
 public:
  BlockPacker(WireFormat& wire_format, const Feedback& feedback, const Slice& slice,
              ConstTensorView src, ByteSpan wire, const Stream& stream)
      : format_(wire_format),
        slice_(slice),
        p_(elements<T>(src), elements<T>(feedback.residual).data()),
        wire_(wire),
        stream_(stream),
        shape_(src.shape()),
        next_(feedback),
        size_(block_size(wire_format.seam(slice.stage))),
        sums_(std::min(size_, p_.size)),
        own_(sums_.size()) {
    const auto sections = wire_format.sections(static_cast<std::int64_t>(p_.size), slice.stage);
    std::size_t start = 0;
    for (const std::size_t bytes : sections) places_.push_back(std::exchange(start, start + bytes));
    if (sections.size() > 1) aside_.resize(bytes_of(sums_.size()));
  }

  Status run() {
    for (std::size_t begin = 0; begin < p_.size; begin += size_) {
      GW_TRY(block(begin, std::min(size_, p_.size - begin)));
    }
    return next_.finish(shape_);
  }

 private:
  static std::size_t block_size(std::int64_t seam) {
    return static_cast<std::size_t>((kLeastBlock + seam - 1) / seam * seam);
  }
  std::size_t bytes_of(std::size_t elems) const {
    return format_.bytes(static_cast<std::int64_t>(elems), slice_.stage);
  }

  Status block(std::size_t begin, std::size_t count) {
    sum_ahead(p_.part(begin, count), sums_.data());
    Slice slice = slice_;
    slice.first += static_cast<std::int64_t>(begin);
    const bool together = places_.size() == 1;
    const ByteSpan room =
        (together ? wire_.subspan(places_[0]) : ByteSpan(aside_)).first(bytes_of(count));
    const auto wrote = format_.pack(const_view_of<T>(std::span<const T>(sums_).first(count)), slice,
                                    room, stream_);
    if (!wrote.has_value()) return wrote.error();
    GW_TRY(format_.unpack(room, slice, view_of<T>(std::span<T>(own_).first(count)), stream_));
    if (together) {
      places_[0] += room.size();
    } else {
      put_sections(count);
    }
    next_.put(sums_.data(), own_.data(), count);
    return {};
  }

  void put_sections(std::size_t count) {
    const auto sections = format_.sections(static_cast<std::int64_t>(count), slice_.stage);
    const std::byte* from = aside_.data();
    for (std::size_t s = 0; s < sections.size(); ++s) {
      std::memcpy(wire_.data() + places_[s], from, sections[s]);
      places_[s] += sections[s];
      from += sections[s];
    }
  }

  WireFormat& format_;
  Slice slice_;
  Corrected<T> p_;
  ByteSpan wire_;
  const Stream& stream_;
  Shape shape_;
  ResidualWriter<T> next_;
  std::size_t size_;  // of a block, in elements
  std::vector<T> sums_;
  std::vector<T> own_;
  std::vector<std::size_t> places_;  // by section: where its next bytes go
  std::vector<std::byte> aside_;     // a block's payload, where it has several sections
};

template <typename T>
void put_corrected_typed(std::span<const T> grad, std::span<const T> residual, std::span<T> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = grad[i] + residual[i];
}

}  // namespace

void put_corrected(ConstTensorView grad, const Feedback& feedback, TensorView out) {
  if (out.dtype() == DType::kF64) {
    put_corrected_typed<double>(elements<double>(grad), elements<double>(feedback.residual),
                                elements<double>(out));
  } else {
    put_corrected_typed<float>(elements<float>(grad), elements<float>(feedback.residual),
                               elements<float>(out));
  }
}

bool fits_in_blocks(const WireFormat& format, int stage) {
  const std::int64_t seam = format.seam(stage);
  return seam > 0 && seam <= kMostSeam;
}

Result<std::size_t> pack_in_blocks(std::string_view method, WireFormat& format, DType dtype,
                                   ConstTensorView src, const Feedback& feedback,
                                   const Slice& slice, ByteSpan wire, const Stream& stream) {
  GW_TRY(check_feedback(method, src, feedback, dtype));
  const std::size_t count = format.bytes(src.elems(), slice.stage);
  GW_TRY(check_room(std::string(method) + ": payload", wire.size(), count));
  if (src.empty()) return count;
  const ByteSpan room = wire.first(count);
  const Status status = dtype == DType::kF64
                            ? BlockPacker<double>(format, feedback, slice, src, room, stream).run()
                            : BlockPacker<float>(format, feedback, slice, src, room, stream).run();
  if (!status.ok()) return status.with_context(std::string(method));
  return count;
}

}  // namespace gradwire
