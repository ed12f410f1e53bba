// acpsgd on a device.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "compress/acpsgd/acpsgd_device.h"
#include "compress/contract.h"
#include "compress/cuda/device_contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/powersgd/thin_on_device.h"
#include "compress/powersgd/thin_thread_kernels.h"
#include "device/ops.h"

namespace gradwire::cuda {
namespace {

// Memory that lasts from step to step.
struct AcpSgdRooms {
  Buffer p;      // P^T
  Buffer q;      // Q^T
  Buffer basis;  // the factor that is not sought, orthonormal; and as long as either:
  Buffer own;    // this rank's factor
  Buffer mean;   // the average factor; of dense tensors the mean

  static Result<AcpSgdRooms> open(const ThinOnDevice& thin, std::int64_t elems, Device device) {
    const std::size_t most = std::max(thin.p_values(), thin.q_values());
    const std::size_t received = most == 0 ? static_cast<std::size_t>(elems) : most;
    AcpSgdRooms rooms;
    GW_ASSIGN(rooms.p, Buffer::allocate(thin.p_values() * sizeof(float), device));
    GW_ASSIGN(rooms.q, Buffer::allocate(thin.q_values() * sizeof(float), device));
    GW_ASSIGN(rooms.basis, Buffer::allocate(most * sizeof(float), device));
    GW_ASSIGN(rooms.own, Buffer::allocate(most * sizeof(float), device));
    GW_ASSIGN(rooms.mean, Buffer::allocate(received * sizeof(float), device));
    return Result<AcpSgdRooms>(std::move(rooms));
  }
};

class AcpSgdDeviceCoder final : public PlacedCoder {
 public:
  AcpSgdDeviceCoder(const Shape& shape, const Compressor::Placement& where, ThinOnDevice thin,
                    AcpSgdRooms rooms)
      : PlacedCoder("acpsgd", shape.elems(), where.device, where.dtype),
        where_(where),
        thin_(std::move(thin)),
        rooms_(std::move(rooms)) {}

  // Waits, so that steps may be on any stream.
  Status draw_first(const Stream& stream) {
    if (dense()) return {};
    std::vector<float> p(thin_.p_values());
    std::vector<float> q(thin_.q_values());
    draw_acpsgd_start<float>(where_, p, q);
    GW_TRY(copy_bytes(std::as_bytes(std::span(p)), {}, factor_bytes(rooms_.p, p.size()), device_,
                      stream));
    GW_TRY(copy_bytes(std::as_bytes(std::span(q)), {}, factor_bytes(rooms_.q, q.size()), device_,
                      stream));
    return synchronize(stream);
  }

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) override {
    turn_ = Turn::kBegin;
    GW_TRY(PlacedCoder::begin(grad, step, stream));
    left_ = step % 2 == 0;
    if (!dense()) GW_TRY(make_basis(step, stream));
    turn_ = Turn::kEncode;
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_acpsgd_turn("encode", turn_ != Turn::kBegin && round == 0));
    const std::size_t bytes = sent_values() * sizeof(float);
    GW_TRY(check_room("acpsgd: payload", payload.size(), bytes));
    if (bytes == 0) return bytes;
    const ByteSpan to = payload.first(bytes);
    const auto* const grad = reinterpret_cast<const float*>(grad_.data());
    if (dense()) {
      GW_TRY(copy_bytes(grad_.bytes(), device_, to, device_, stream));
    } else if (left_) {
      const Source m{.grad = grad, .count = elems_};
      GW_TRY(thin_.times(m, values(rooms_.basis), to, values(rooms_.own), stream));
    } else {
      GW_TRY(thin_.transposed_times(grad, values(rooms_.basis), to, values(rooms_.own), stream));
    }
    return bytes;
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_acpsgd_turn("absorb", turn_ != Turn::kBegin && round == 0));
    if (payloads.size() != 1)
      return {Code::kInvalidArgument, "acpsgd: expected one summed payload"};
    GW_TRY(
        check_length("acpsgd: sum of a factor", payloads[0].size(), sent_values() * sizeof(float)));
    const float factor = static_cast<float>(1.0 / where_.size);  // as none divides
    GW_TRY(thin_.clear(stream));
    if (!payloads[0].empty()) {
      GW_TRY(thin_.receive(payloads[0], factor, values(rooms_.mean), stream));
    }
    if (dense()) GW_TRY(judge(stream));
    turn_ = Turn::kFinish;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check_acpsgd_turn("finish", turn_ == Turn::kFinish));
    GW_TRY(check("mean", mean));
    if (!own.empty()) GW_TRY(check("own", own));
    turn_ = Turn::kBegin;
    if (mean.empty()) return {};
    const Device there = device_;
    if (dense()) {  // own before mean, which may be the gradient's memory
      if (!own.empty()) GW_TRY(copy_bytes(grad_.bytes(), there, own.bytes(), there, stream));
      return copy_bytes(factor_bytes(rooms_.mean, sent_values()), there, mean.bytes(), there,
                        stream);
    }
    if (!own.empty()) GW_TRY(multiply(rooms_.own, own, stream));
    GW_TRY(multiply(rooms_.mean, mean, stream));
    GW_TRY(judge(stream));
    return copy_bytes(factor_bytes(rooms_.mean, sent_values()), there,
                      factor_bytes(left_ ? rooms_.p : rooms_.q, sent_values()), there, stream);
  }

  std::vector<NamedTensor> state() override {
    if (dense()) return {};
    return {{"p", factor(rooms_.p, thin_.shape().a)}, {"q", factor(rooms_.q, thin_.shape().c)}};
  }

 private:
  enum class Turn : std::uint8_t { kBegin, kEncode, kFinish };

  bool dense() const { return thin_.shape().r == 0; }
  std::size_t sent_values() const {
    return dense() ? static_cast<std::size_t>(elems_) : left_ ? thin_.p_values() : thin_.q_values();
  }
  static float* values(const Buffer& buffer) {
    return reinterpret_cast<float*>(buffer.bytes().data());
  }
  static ByteSpan factor_bytes(const Buffer& buffer, std::size_t count) {
    return buffer.bytes().first(count * sizeof(float));
  }
  TensorView factor(const Buffer& buffer, std::size_t length) const {
    return buffer.tensor(Shape::matrix(static_cast<std::int64_t>(thin_.shape().r),
                                       static_cast<std::int64_t>(length)),
                         DType::kF32);
  }

  Status make_basis(std::uint64_t step, const Stream& stream) {
    const Buffer& from = left_ ? rooms_.q : rooms_.p;
    const std::size_t count = left_ ? thin_.q_values() : thin_.p_values();
    GW_TRY(copy_bytes(factor_bytes(from, count), device_, factor_bytes(rooms_.basis, count),
                      device_, stream));
    GW_TRY(thin_.clear(stream));
    return thin_.orthonormalise(values(rooms_.basis), count / thin_.shape().r, "a factor",
                                acpsgd_fresh(where_, step), stream);
  }

  // out = the matrix of this step's factor and basis.
  Status multiply(const Buffer& moved, TensorView out, const Stream& stream) {
    const Buffer& p = left_ ? moved : rooms_.basis;
    const Buffer& q = left_ ? rooms_.basis : moved;
    return thin_.product(values(p), values(q), reinterpret_cast<float*>(out.data()), stream);
  }

  // What was found of what was received.
  Status judge(const Stream& stream) {
    GW_ASSIGN(const Finding finding, thin_.read(stream));
    return finding.kind == 0 ? Status() : thin_.corrupt(finding, "a factor");
  }

  Compressor::Placement where_;
  ThinOnDevice thin_;
  AcpSgdRooms rooms_;
  bool left_ = true;  // this step finds P
  Turn turn_ = Turn::kBegin;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_acpsgd_coder(const Shape& shape, const AcpSgdOptions& options,
                                                 const Compressor::Placement& where) {
  GW_TRY(check_device_placement("acpsgd", where));
  GW_ASSIGN(ThinOnDevice thin, ThinOnDevice::open("acpsgd", acpsgd_shape(shape, options), where));
  GW_ASSIGN(AcpSgdRooms rooms, AcpSgdRooms::open(thin, shape.elems(), where.device));
  auto coder = std::make_unique<AcpSgdDeviceCoder>(shape, where, std::move(thin), std::move(rooms));
  GW_TRY(coder->draw_first({where.device, nullptr}));
  return std::unique_ptr<Coder>(std::move(coder));
}

}  // namespace gradwire::cuda
