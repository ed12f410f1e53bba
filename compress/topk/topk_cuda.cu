// topk on a device.
#include <utility>

#include "compress/sparse/chosen_count.h"
#include "compress/sparse/pair_device_coder.h"
#include "compress/topk/topk_device.h"
#include "compress/topk/topk_selection.h"

namespace gradwire::cuda {
namespace {

class TopkDeviceCoder final : public PairDeviceCoder {
 public:
  TopkDeviceCoder(std::size_t k, std::int64_t elems, Device device, PairsOnDevice payloads,
                  TopkSelection selection)
      : PairDeviceCoder("topk", elems, device, std::move(payloads)),
        k_(k),
        selection_(std::move(selection)) {}

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round(method_, round, 1));
    GW_TRY(check_room(method_ + ": payload", payload.size(), payloads_.bytes(k_)));
    if (k_ == 0) return std::size_t{0};
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_ASSIGN(const Scratch values, Scratch::allocate(payloads_.value_room(k_), stream));
    GW_TRY(selection_.select(source(), payloads_.target(k_, payload, values), stream));
    GW_TRY(payloads_.complete(k_, values, step_, payload, stream));
    return payloads_.bytes(k_);
  }

 private:
  std::size_t k_;
  TopkSelection selection_;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_topk_coder(const SparseOptions& options, std::size_t k,
                                               const Shape& shape,
                                               const Compressor::Placement& where, TopkWay way) {
  GW_TRY(check_device_placement("topk", where));
  GW_TRY(check_index_range("topk", shape, kMostSparseElems - 1));  // counts have 32 bits
  GW_ASSIGN(auto payloads, PairsOnDevice::open("topk", options, k, false, shape.elems(), where));
  GW_ASSIGN(auto selection, TopkSelection::open("topk", k, shape.elems(), where.device, way));
  return std::unique_ptr<Coder>(std::make_unique<TopkDeviceCoder>(
      k, shape.elems(), where.device, std::move(payloads), std::move(selection)));
}

}  // namespace gradwire::cuda
