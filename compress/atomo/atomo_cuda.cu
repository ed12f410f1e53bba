// atomo on a device.
#include <algorithm>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "compress/atomo/atom_kernels.h"
#include "compress/atomo/atomo_device.h"
#include "compress/contract.h"
#include "compress/cuda/device_contract.h"
#include "compress/cuda/placed_coder.h"
#include "device/cuda/memory.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire::cuda {
namespace {

constexpr std::uint64_t kRankPlaces = std::uint64_t{1} << 40;  // of findings in one payload

struct AtomRooms {
  Buffer matrix;   // pinned; of dense tensors neither is there
  Buffer payload;  // pinned
};

class AtomoDeviceCoder final : public PlacedCoder {
 public:
  // `here` is the host's coder, of the same tensor.
  AtomoDeviceCoder(const Shape& shape, const Compressor::Placement& where,
                   std::unique_ptr<Coder> here, AtomRooms rooms, Verdict verdict)
      : PlacedCoder("atomo", shape.elems(), where.device, where.dtype),
        shape_(shape),
        atoms_(atom_shape(shape)),
        where_(where),
        here_(std::move(here)),
        rooms_(std::move(rooms)),
        verdict_(std::move(verdict)) {}

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_atomo_turn("encode", turn_ != Turn::kBegin && round == 0));
    const OnDevice there(device_);
    GW_TRY(there.status());
    return dense() ? encode_dense(payload, stream) : encode_here(payload, stream);
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_atomo_turn("absorb", turn_ != Turn::kBegin && round == 0));
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              format("atomo: %zu payloads (expected %d)", payloads.size(), where_.size)};
    }
    const OnDevice there(device_);
    GW_TRY(there.status());
    lists_.clear();
    GW_TRY(verdict_.clear(stream));
    for (const ConstByteSpan payload : payloads) GW_TRY(take(payload, stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind != 0) return corrupt(finding);
    turn_ = Turn::kFinish;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check_atomo_turn("finish", turn_ == Turn::kFinish));
    GW_TRY(check("mean", mean));
    if (!own.empty()) GW_TRY(check("own", own));
    turn_ = Turn::kBegin;
    if (mean.empty()) return {};
    const OnDevice there(device_);
    GW_TRY(there.status());
    const std::span<const AtomList> all(lists_);
    if (!own.empty()) {
      GW_TRY(put_sum(all.subspan(static_cast<std::size_t>(where_.rank), 1), 1, own, stream));
    }
    return put_sum(all, static_cast<float>(1.0 / where_.size), mean, stream);
  }

 private:
  enum class Turn : std::uint8_t { kBegin, kEncode, kFinish };

  void forget() override { turn_ = Turn::kEncode; }
  bool dense() const { return atoms_.r == 0; }
  std::size_t atom_bytes() const { return atoms_.values() * sizeof(float); }

  Result<std::size_t> encode_dense(ByteSpan payload, const Stream& stream) {
    const std::size_t bytes = grad_.bytes().size();
    GW_TRY(check_room("atomo: payload", payload.size(), bytes));
    if (bytes == 0) return bytes;
    GW_TRY(verdict_.clear(stream));
    const DenseToPayload kernel{reinterpret_cast<const float*>(grad_.data()), elems_,
                                starts_at(payload.data(), 4), payload.data(), verdict_.word()};
    GW_TRY(launch("atomo: values", kernel, blocks_for(elems_, DenseToPayload::kThreads), stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind == 0) return bytes;
    return Status(
        Code::kInvalidArgument,
        format("atomo: element %llu of the slice is not finite (expected a finite number)",
               static_cast<unsigned long long>(finding.place)));
  }

  Result<std::size_t> encode_here(ByteSpan payload, const Stream& stream) {
    const ByteSpan matrix = rooms_.matrix.bytes().first(grad_.bytes().size());
    GW_TRY(copy_bytes(grad_.bytes(), device_, matrix, rooms_.matrix.device(), stream));
    GW_TRY(synchronize({device_, stream.native}));
    GW_TRY(here_->begin({matrix.data(), shape_, DType::kF32}, step_, {}));
    GW_ASSIGN(const std::size_t bytes, here_->encode(0, rooms_.payload.bytes(), {}));
    GW_TRY(check_room("atomo: payload", payload.size(), bytes));
    GW_TRY(copy_bytes(rooms_.payload.bytes().first(bytes), rooms_.payload.device(),
                      payload.first(bytes), device_, stream));
    return bytes;
  }

  // Enqueues a look at what one more rank sent.
  Status take(ConstByteSpan payload, const Stream& stream) {
    const std::size_t rank = lists_.size();
    const std::size_t head = dense() ? 0 : kAtomCountBytes;
    std::size_t atoms = 0;
    if (dense()) {
      GW_TRY(
          check_length("atomo", payload.size(), static_cast<std::size_t>(elems_) * sizeof(float)));
    } else {
      atoms = payload.size() < head ? 0 : (payload.size() - head) / atom_bytes();
      GW_TRY(
          check_length("atomo", payload.size(), head + std::min(atoms, atoms_.r) * atom_bytes()));
    }
    const std::size_t values = (payload.size() - head) / sizeof(float);
    const AtomList list{payload.data() + head, static_cast<std::int64_t>(atoms),
                        starts_at(payload.data() + head, 4)};
    lists_.push_back(list);
    const AtomsAreSound kernel{payload.data(),
                               list,
                               static_cast<std::int64_t>(values),
                               dense() ? 0 : static_cast<std::int64_t>(atoms_.values()),
                               rank * kRankPlaces,
                               verdict_.word()};
    const std::int64_t threads = std::max(kernel.count, std::int64_t{dense() ? 0 : 1});
    return launch("atomo: payload", kernel, blocks_for(threads, AtomsAreSound::kThreads), stream);
  }

  Status corrupt(Finding finding) const {
    const auto rank = static_cast<unsigned long long>(finding.place / kRankPlaces);
    const auto value = static_cast<unsigned long long>(finding.place % kRankPlaces);
    switch (finding.kind) {
      case kAtomCount:
        return {Code::kCorruptPayload,
                format("atomo: payload of rank %llu: its count is not that of its %lld atoms", rank,
                       static_cast<long long>(lists_[rank].atoms))};
      default:
        return {
            Code::kCorruptPayload,
            format(
                "atomo: payload of rank %llu: value %llu is no %s (expected finite and in range)",
                rank, value,
                finding.kind == kAtomWeight    ? "weight"
                : finding.kind == kAtomElement ? "element of a unit vector"
                                               : "value")};
    }
  }

  Status put_sum(std::span<const AtomList> lists, float factor, TensorView dst,
                 const Stream& stream) const {
    constexpr std::size_t kMost = AtomSums::kMostPayloads;
    for (std::size_t first = 0; first < lists.size(); first += kMost) {
      const auto some = lists.subspan(first, std::min(kMost, lists.size() - first));
      const bool last = first + some.size() == lists.size();
      GW_TRY(dense()
                 ? put(DenseAtomSums{.count = elems_}, some, first == 0, last, factor, dst, stream)
                 : put(AtomSums{.a = static_cast<std::int64_t>(atoms_.a),
                                .c = static_cast<std::int64_t>(atoms_.c)},
                       some, first == 0, last, factor, dst, stream));
    }
    return {};
  }
  template <class Kernel>
  static Status put(Kernel kernel, std::span<const AtomList> some, bool first, bool last,
                    float factor, TensorView dst, const Stream& stream) {
    std::copy(some.begin(), some.end(), kernel.payloads);
    kernel.number = static_cast<int>(some.size());
    kernel.first = first;
    kernel.last = last;
    kernel.factor = factor;
    kernel.dst = elements<float>(dst).data();
    return launch("atomo: sums", kernel, kernel.blocks(), stream);
  }

  Shape shape_;
  AtomShape atoms_;
  Compressor::Placement where_;
  std::unique_ptr<Coder> here_;
  AtomRooms rooms_;
  Verdict verdict_;
  Turn turn_ = Turn::kBegin;
  std::vector<AtomList> lists_;  // by rank
};

}  // namespace

Result<std::unique_ptr<Coder>> make_atomo_coder(const Shape& shape, double budget,
                                                const Compressor::Placement& where) {
  GW_TRY(check_device_placement("atomo", where));
  const AtomShape atoms = atom_shape(shape);
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  AtomRooms rooms;
  if (atoms.r > 0) {
    const Device pinned{MemorySpace::kPinnedHost, 0};
    const std::size_t most = kAtomCountBytes + atoms.r * atoms.values() * sizeof(float);
    GW_ASSIGN(rooms.matrix, Buffer::allocate(atoms.a * atoms.c * sizeof(float), pinned));
    GW_ASSIGN(rooms.payload, Buffer::allocate(most, pinned));
  }
  Compressor::Placement host = where;
  host.device = {};
  return std::unique_ptr<Coder>(std::make_unique<AtomoDeviceCoder>(
      shape, where, gradwire::make_atomo_coder(shape, budget, host), std::move(rooms),
      std::move(verdict)));
}

}  // namespace gradwire::cuda
