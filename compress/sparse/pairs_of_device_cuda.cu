// Pairs of a tensor on a device, on the host, and back.
#include <algorithm>
#include <cstring>
#include <utility>

#include "compress/cuda/device_contract.h"
#include "compress/sparse/pair_kernels.h"
#include "compress/sparse/pairs_of_device.h"
#include "compress/threshold/threshold_selection.h"
#include "device/cuda/memory.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire::cuda {
namespace {

// As a key (topk_arithmetic.h): of the smallest number that is not 0.
constexpr std::uint32_t kLeastKey = 1;

class PairsOfOneTensor final : public PairsOfDevice {
 public:
  PairsOfOneTensor(std::int64_t elems, Device device, ThresholdSelection selection, Verdict verdict,
                   Buffer starts)
      : elems_(elems),
        device_(device),
        selection_(std::move(selection)),
        verdict_(std::move(verdict)),
        starts_(std::move(starts)) {}

  Status fetch(ConstTensorView tensor, std::vector<std::uint32_t>& index,
               std::vector<float>& values, const Stream& stream) override {
    GW_TRY(check_tensor_on(device_, "pairs: tensor", tensor, elems_, DType::kF32));
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_ASSIGN(const Scratch scratch, Scratch::allocate(selection_.room(), stream));
    const Source source = source_of(tensor, std::nullopt);
    GW_ASSIGN(const std::size_t pairs, selection_.count(source, kLeastKey, scratch, stream));
    index.resize(pairs);
    values.resize(pairs);
    if (pairs == 0) return {};
    const std::size_t half = pairs * sizeof(float);
    GW_ASSIGN(const Scratch there, Scratch::allocate(2 * half, stream));
    const PairTarget to{there.as<std::byte>(), nullptr, nullptr, true};
    GW_TRY(selection_.write(source, scratch, to, stream));
    if (here_.bytes().size() < 2 * half) {
      GW_ASSIGN(here_, Buffer::allocate(2 * half + half / 2, {MemorySpace::kPinnedHost, 0}));
    }
    const ByteSpan landed = here_.bytes().first(2 * half);
    GW_TRY(copy_bytes({there.as<std::byte>(), 2 * half}, device_, landed, here_.device(), stream));
    GW_TRY(synchronize({device_, stream.native}));
    std::memcpy(index.data(), landed.data(), half);
    std::memcpy(values.data(), landed.data() + half, half);
    return {};
  }

  Status put(std::span<const std::uint32_t> index, std::span<const float> values, float factor,
             TensorView dst, const Stream& stream) override {
    GW_TRY(check_tensor_on(device_, "pairs: dst", dst, elems_, DType::kF32));
    if (elems_ == 0) return {};
    const OnDevice here(device_);
    GW_TRY(here.status());
    const ConstByteSpan sources[] = {std::as_bytes(index), std::as_bytes(values)};
    const std::size_t half = sources[0].size();
    GW_ASSIGN(const Scratch there, Scratch::allocate(2 * half, stream));
    PairList list{};
    if (half > 0) {
      // A copy of memory that is not pinned waits as long as it takes.
      GW_TRY(synchronize({device_, stream.native}));
      std::byte* const at = there.as<std::byte>();
      for (std::size_t i = 0; i < 2; ++i) {
        GW_TRY(copy_bytes(sources[i], {}, {at + i * half, half}, device_, stream));
      }
      list = {at, at + half, starts()};
      const auto pairs = static_cast<std::int64_t>(index.size());
      const PairStarts kernel{at, pairs, elems_, tiles(), true, starts(), verdict_.word()};
      GW_TRY(launch("pairs: places", kernel, blocks_for(pairs + 1, PairStarts::kThreads), stream));
    }
    PairSums sums{.payloads = {},
                  .number = 1,
                  .first = true,
                  .last = true,
                  .in_words = true,
                  .packed = starts_at(dst.data(), 16),
                  .factor = factor,
                  .dst = reinterpret_cast<float*>(dst.data()),
                  .elems = elems_,
                  .tiles = tiles()};
    sums.payloads[0] = list;
    return launch("pairs: tensor", sums, std::min(tiles(), kMostBlocks), stream);
  }

 private:
  std::int64_t tiles() const { return blocks_for(elems_, kSelectTile); }
  std::uint32_t* starts() const { return reinterpret_cast<std::uint32_t*>(starts_.bytes().data()); }

  std::int64_t elems_;
  Device device_;
  ThresholdSelection selection_;
  Verdict verdict_;  // what is put is right: nobody asks
  Buffer starts_;    // of tiles among pairs that are put, and the end
  Buffer here_;      // pinned: as many pairs as were fetched so far
};

}  // namespace

Result<std::unique_ptr<PairsOfDevice>> make_pairs_of_device(std::int64_t elems, Device device) {
  GW_ASSIGN(auto selection, ThresholdSelection::open("pairs", elems, device));
  GW_ASSIGN(Verdict verdict, Verdict::open(device));
  const auto starts = static_cast<std::size_t>(blocks_for(elems, kSelectTile) + 1);
  GW_ASSIGN(Buffer room, Buffer::allocate(starts * sizeof(std::uint32_t), device));
  return std::unique_ptr<PairsOfDevice>(std::make_unique<PairsOfOneTensor>(
      elems, device, std::move(selection), std::move(verdict), std::move(room)));
}

}  // namespace gradwire::cuda
