// threshold on a device.
#include <utility>

#include "compress/sparse/chosen_count.h"
#include "compress/sparse/pair_device_coder.h"
#include "compress/threshold/threshold_device.h"
#include "compress/threshold/threshold_selection.h"

namespace gradwire::cuda {
namespace {

class ThresholdDeviceCoder final : public PairDeviceCoder {
 public:
  ThresholdDeviceCoder(std::uint32_t low, std::int64_t elems, Device device, PairsOnDevice payloads,
                       ThresholdSelection selection)
      : PairDeviceCoder("threshold", elems, device, std::move(payloads)),
        low_(low),
        selection_(std::move(selection)) {}

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round(method_, round, 1));
    GW_TRY(check_room(method_ + ": payload", payload.size(), payloads_.bytes(0)));
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_ASSIGN(const Scratch scratch, Scratch::allocate(selection_.room(), stream));
    GW_ASSIGN(const std::size_t pairs, selection_.count(source(), low_, scratch, stream));
    GW_TRY(check_room(method_ + ": payload", payload.size(), payloads_.bytes(pairs)));
    GW_ASSIGN(const Scratch values, Scratch::allocate(payloads_.value_room(pairs), stream));
    if (pairs > 0 || (elems_ > 0 && source().next != nullptr)) {
      const PairTarget to = payloads_.target(pairs, payload, values);
      GW_TRY(selection_.write(source(), scratch, to, stream));
    }
    GW_TRY(payloads_.complete(pairs, values, step_, payload, stream));
    return payloads_.bytes(pairs);
  }

 private:
  std::uint32_t low_;
  ThresholdSelection selection_;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_threshold_coder(const SparseOptions& options, std::uint32_t low,
                                                    const Shape& shape,
                                                    const Compressor::Placement& where) {
  GW_TRY(check_device_placement("threshold", where));
  GW_TRY(check_index_range("threshold", shape, kMostSparseElems - 1));
  const auto most = static_cast<std::size_t>(shape.elems());
  GW_ASSIGN(auto payloads,
            PairsOnDevice::open("threshold", options, most, true, shape.elems(), where));
  GW_ASSIGN(auto selection, ThresholdSelection::open("threshold", shape.elems(), where.device));
  return std::unique_ptr<Coder>(std::make_unique<ThresholdDeviceCoder>(
      low, shape.elems(), where.device, std::move(payloads), std::move(selection)));
}

}  // namespace gradwire::cuda
