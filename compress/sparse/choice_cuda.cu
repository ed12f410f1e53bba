// Places that all ranks know, on a device: what coders of such methods share there.
#include <algorithm>

#include "base/text.h"
#include "compress/sparse/choice_kernels.h"
#include "compress/sparse/choice_on_device.h"
#include "compress/sparse/pair_kernels.h"
#include "device/cuda/memory.h"

namespace gradwire::cuda {
namespace {

std::int64_t tiles_of_choice(std::int64_t elems) { return blocks_for(elems, kSelectTile); }
std::int64_t blocks_of_choice(std::int64_t elems) {
  return std::min(tiles_of_choice(elems), kMostBlocks);
}

}  // namespace

Result<ChoiceOnDevice> ChoiceOnDevice::open(std::string method, std::size_t k, std::int64_t elems,
                                            float factor, std::unique_ptr<Coder> inner,
                                            Device device) {
  GW_ASSIGN(Verdict verdict, Verdict::open(device));
  ChoiceOnDevice choice(std::move(method), k, elems, factor, std::move(inner), device,
                        std::move(verdict));
  const auto tiles = static_cast<std::size_t>(tiles_of_choice(elems));
  GW_ASSIGN(choice.bitmap_, Buffer::allocate(tiles * (kSelectTile / 8), device));
  GW_ASSIGN(choice.starts_, Buffer::allocate((tiles + 1) * sizeof(std::uint32_t), device));
  for (Buffer* const room : {&choice.picked_, &choice.mean_, &choice.own_}) {
    GW_ASSIGN(*room, Buffer::allocate(k * sizeof(float), device));
  }
  return Result<ChoiceOnDevice>(std::move(choice));
}

TensorView ChoiceOnDevice::values(const Buffer& of) const {
  return {of.bytes().data(), Shape::vector(static_cast<std::int64_t>(k_)), DType::kF32, device_};
}

Status ChoiceOnDevice::clear(const Stream& stream) {
  return status_of(cudaMemsetAsync(bits(), 0, bitmap_.bytes().size(), native(stream)),
                   "choice: clear");
}

Status ChoiceOnDevice::count(std::uint64_t* verdict, const Stream& stream) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(bits());
  const std::int64_t tiles = tiles_of_choice(elems_);
  GW_TRY(launch("choice: bits", BitmapCounts{bytes, elems_, tiles, starts(), verdict},
                blocks_of_choice(elems_), stream));
  const auto k = static_cast<std::int64_t>(k_);
  return launch("choice: starts", BitmapStarts{tiles, k, starts(), verdict}, 1, stream);
}

Result<std::size_t> ChoiceOnDevice::encode(const Source& source, std::uint64_t step,
                                           ByteSpan payload, const Stream& stream) {
  if (elems_ > 0) {
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_TRY(verdict_.clear(stream));
    const bool packed =
        starts_at(source.grad, 16) && starts_at(source.residual, 16) && starts_at(source.next, 16);
    const PickChosen kernel{source,  tiles_of_choice(elems_),
                            bits(),  starts(),
                            factor_, reinterpret_cast<float*>(picked_.bytes().data()),
                            packed,  verdict_.word()};
    GW_TRY(launch("choice: pick", kernel, blocks_of_choice(elems_), stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind != 0) {
      return Status(Code::kInvalidArgument,
                    method_ + format(": element %llu is not finite (expected finite numbers: most "
                                     "are not sent, and would be forgotten)",
                                     static_cast<unsigned long long>(finding.place)));
    }
  }
  GW_TRY(inner_->begin(values(picked_), step, stream));
  return inner_->encode(0, payload, stream);
}

Status ChoiceOnDevice::finish(TensorView mean, TensorView own, const Stream& stream) {
  GW_TRY(inner_->finish(values(mean_), own.empty() ? TensorView() : values(own_), stream));
  if (mean.empty()) return {};
  const OnDevice here(device_);
  GW_TRY(here.status());
  if (!own.empty()) GW_TRY(spread(own_, own, stream));
  return spread(mean_, mean, stream);
}

Status ChoiceOnDevice::spread(const Buffer& from, TensorView dst, const Stream& stream) const {
  const SpreadChosen kernel{reinterpret_cast<const float*>(from.bytes().data()),
                            elems_,
                            tiles_of_choice(elems_),
                            bits(),
                            starts(),
                            starts_at(dst.data(), 16),
                            reinterpret_cast<float*>(dst.data())};
  return launch("choice: spread", kernel, blocks_of_choice(elems_), stream);
}

}  // namespace gradwire::cuda
