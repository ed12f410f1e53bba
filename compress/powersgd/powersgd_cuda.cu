// powersgd on a device.
#include <utility>

#include "base/text.h"
#include "compress/contract.h"
#include "compress/cuda/device_contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/powersgd/powersgd_device.h"
#include "compress/powersgd/thin_on_device.h"
#include "compress/powersgd/thin_thread_kernels.h"
#include "device/ops.h"

namespace gradwire::cuda {
namespace {

// Memory that lasts from step to step.
struct PowerSgdRooms {
  Buffer q;       // Q^T of this step
  Buffer own_q;   // Q_i^T
  Buffer mean_q;  // Q'^T
  Buffer p;       // P^T, then orthonormal; of dense tensors the sum
  Buffer drawn;   // pinned: Q^T as the host draws it

  static Result<PowerSgdRooms> open(const cpu::ThinShape& thin, std::int64_t elems, Device device) {
    const bool dense = thin.r == 0;
    const std::size_t q_bytes = thin.r * thin.c * sizeof(float);
    const std::size_t p_values = dense ? static_cast<std::size_t>(elems) : thin.r * thin.a;
    PowerSgdRooms rooms;
    for (Buffer* const factor : {&rooms.q, &rooms.own_q, &rooms.mean_q}) {
      GW_ASSIGN(*factor, Buffer::allocate(q_bytes, device));
    }
    GW_ASSIGN(rooms.p, Buffer::allocate(p_values * sizeof(float), device));
    GW_ASSIGN(rooms.drawn, Buffer::allocate(q_bytes, {MemorySpace::kPinnedHost, 0}));
    return Result<PowerSgdRooms>(std::move(rooms));
  }
};

class PowerSgdDeviceCoder final : public PlacedCoder {
 public:
  PowerSgdDeviceCoder(const Shape& shape, const PowerSgdOptions& options,
                      const Compressor::Placement& where, ThinOnDevice thin, PowerSgdRooms rooms)
      : PlacedCoder("powersgd", shape.elems(), where.device, where.dtype),
        warm_(options.warm),
        where_(where),
        thin_(std::move(thin)),
        rooms_(std::move(rooms)) {}

  // Waits, so that steps may be on any stream.
  Status draw_first(const Stream& stream) {
    if (!warm_) return {};
    GW_TRY(draw_start(0, stream));
    GW_TRY(synchronize(stream));
    rooms_.drawn = Buffer();
    return {};
  }

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) override {
    GW_TRY(PlacedCoder::begin(grad, step, stream));
    absorbed_ = 0;
    return warm_ ? Status() : draw_start(step, stream);
  }
  bool takes_feedback() const override { return !dense(); }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_turn("encode", round));
    const std::size_t bytes = payload_bytes(round);
    GW_TRY(check_room("powersgd: payload", payload.size(), bytes));
    const ByteSpan to = payload.first(bytes);
    if (dense()) {
      if (bytes == 0) return bytes;
      GW_TRY(copy_bytes(grad_.bytes(), device_, to, device_, stream));
    } else if (round == 0) {
      GW_TRY(multiply(to, stream));
    } else {
      const ConstTensorView m = feedback_.has_value() ? feedback_->next : grad_;
      GW_TRY(thin_.transposed_times(reinterpret_cast<const float*>(m.data()), p(), to,
                                    values(rooms_.own_q), stream));
    }
    return bytes;
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_turn("absorb", round));
    if (payloads.size() != 1) {
      return {Code::kInvalidArgument, "powersgd: expected one summed payload"};
    }
    GW_TRY(check_length(format("powersgd: sum of %s", round == 0 ? "P" : "Q"), payloads[0].size(),
                        payload_bytes(round)));
    if (!payloads[0].empty()) GW_TRY(receive(round, payloads[0], stream));
    absorbed_ = round + 1;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check_turn("finish", kRounds));
    GW_TRY(check("mean", mean));
    if (!own.empty()) GW_TRY(check("own", own));
    absorbed_ = -1;
    if (mean.empty()) return {};
    return dense() ? finish_dense(mean, own, stream) : finish_thin(mean, own, stream);
  }

  std::vector<NamedTensor> state() override {
    if (!warm_ || dense()) return {};
    const cpu::ThinShape& thin = thin_.shape();
    const Shape shape =
        Shape::matrix(static_cast<std::int64_t>(thin.r), static_cast<std::int64_t>(thin.c));
    return {{"q", rooms_.q.tensor(shape, DType::kF32)}};
  }

 private:
  static constexpr int kRounds = 2;

  bool dense() const { return thin_.shape().r == 0; }
  static float* values(const Buffer& buffer) {
    return reinterpret_cast<float*>(buffer.bytes().data());
  }
  float* p() const { return values(rooms_.p); }
  // As none divides, so that 1-d tensors come out alike.
  float share() const { return static_cast<float>(1.0 / where_.size); }

  Status check_turn(const char* call, int round) const {
    return check_powersgd_turn(call, round, absorbed_);
  }
  std::size_t payload_bytes(int round) const {
    const std::size_t p_values = dense() ? static_cast<std::size_t>(elems_) : thin_.p_values();
    return (round == 0 ? p_values : thin_.q_values()) * sizeof(float);
  }

  Status draw_start(std::uint64_t step, const Stream& stream) {
    if (dense()) return {};
    const ByteSpan drawn = rooms_.drawn.bytes();
    draw_powersgd_start<float>(where_, step,
                               {reinterpret_cast<float*>(drawn.data()), thin_.q_values()});
    const std::size_t bytes = thin_.q_values() * sizeof(float);
    return copy_bytes(drawn.first(bytes), rooms_.drawn.device(), rooms_.q.bytes().first(bytes),
                      device_, stream);
  }

  Status multiply(ByteSpan payload, const Stream& stream) {
    const Source matrix = source_of(grad_, feedback_);
    if (!feedback_.has_value()) {
      return thin_.times(matrix, values(rooms_.q), payload, nullptr, stream);
    }
    GW_TRY(thin_.clear(stream));
    GW_TRY(thin_.times(matrix, values(rooms_.q), payload, nullptr, stream));
    GW_ASSIGN(const Finding finding, thin_.read(stream));
    if (finding.kind == 0) return {};
    if (finding.kind == kThinElement) {
      return {Code::kInvalidArgument, format("powersgd: element %llu of gradient + residual is not "
                                             "finite (expected finite numbers)",
                                             static_cast<unsigned long long>(finding.place))};
    }
    return {Code::kInvalidArgument, "powersgd: P of gradient + residual is not finite"};
  }

  // What is found of Q waits for finish().
  Status receive(int round, ConstByteSpan sum, const Stream& stream) {
    GW_TRY(thin_.clear(stream));
    if (round == 1) return thin_.receive(sum, share(), values(rooms_.mean_q), stream);
    GW_TRY(thin_.receive(sum, 1, p(), stream));
    if (!dense()) {
      return thin_.orthonormalise(p(), thin_.shape().a, "P", powersgd_fresh(where_, step_), stream);
    }
    GW_ASSIGN(const Finding finding, thin_.read(stream));
    return finding.kind == 0 ? Status() : thin_.corrupt(finding, "P");
  }

  Status finish_dense(TensorView mean, TensorView own, const Stream& stream) {
    if (!own.empty()) {  // before mean, which may be the gradient's memory
      GW_TRY(copy_bytes(grad_.bytes(), device_, own.bytes(), device_, stream));
    }
    return scaled_copy(rooms_.p.tensor(mean.shape(), DType::kF32), 1.0 / where_.size, mean, stream);
  }

  Status finish_thin(TensorView mean, TensorView own, const Stream& stream) {
    const float* const own_q = values(rooms_.own_q);
    if (feedback_.has_value()) {
      auto* const next = reinterpret_cast<float*>(feedback_->next.data());
      GW_TRY(
          thin_.take_product_away(p(), own_q, static_cast<float>(feedback_->scale), next, stream));
    }
    if (!own.empty()) {
      GW_TRY(thin_.product(p(), own_q, reinterpret_cast<float*>(own.data()), stream));
    }
    GW_TRY(
        thin_.product(p(), values(rooms_.mean_q), reinterpret_cast<float*>(mean.data()), stream));
    GW_ASSIGN(const Finding finding, thin_.read(stream));
    if (finding.kind == kThinFactor) return thin_.corrupt(finding, "Q");
    if (finding.kind == kThinResidual) {
      return {Code::kInvalidArgument,
              format("powersgd: element %llu of the new residual is not finite",
                     static_cast<unsigned long long>(finding.place - kResidualPlaces))};
    }
    if (warm_) std::swap(rooms_.q, rooms_.mean_q);
    return {};
  }

  bool warm_;
  Compressor::Placement where_;
  ThinOnDevice thin_;
  PowerSgdRooms rooms_;
  int absorbed_ = -1;  // rounds of this step; -1: no step
};

}  // namespace

Result<std::unique_ptr<Coder>> make_powersgd_coder(const Shape& shape,
                                                   const PowerSgdOptions& options,
                                                   const Compressor::Placement& where) {
  GW_TRY(check_device_placement("powersgd", where));
  const cpu::ThinShape thin = thin_shape(shape, options.rank, options.min_rate);
  GW_ASSIGN(ThinOnDevice factors, ThinOnDevice::open("powersgd", thin, where));
  GW_ASSIGN(PowerSgdRooms rooms, PowerSgdRooms::open(thin, shape.elems(), where.device));
  auto coder = std::make_unique<PowerSgdDeviceCoder>(shape, options, where, std::move(factors),
                                                     std::move(rooms));
  GW_TRY(coder->draw_first({where.device, nullptr}));
  return std::unique_ptr<Coder>(std::move(coder));
}

}  // namespace gradwire::cuda
