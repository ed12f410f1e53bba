// What decorators over a coder on a device share: the order of calls and the words of their errors.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/cuda/device_contract.h"
#include "compress/error_feedback/finite_pass.h"
#include "device/cuda/memory.h"
#include "device/ops.h"
#include "gradwire/buffer.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// A coder that is about to be decorated, and what the decorator needs of its place.
struct DecoratedCoder {
  std::unique_ptr<Coder> inner;
  Shape shape;
  Device device;
  FinitePass passes;

  // check_device_placement().
  static Result<DecoratedCoder> open(std::unique_ptr<Coder> inner, const Shape& shape,
                                     const Compressor::Placement& where) {
    GW_TRY(check_device_placement("error feedback", where));
    GW_ASSIGN(FinitePass passes, FinitePass::open(shape, where.device));
    return DecoratedCoder{std::move(inner), shape, where.device, std::move(passes)};
  }
  // A tensor of zeros.
  Result<Buffer> room() const {
    return Buffer::allocate(static_cast<std::size_t>(shape.elems()) * sizeof(float), device);
  }
};

// Begins the inner coder with what correct() makes of the gradient, hands payloads through, and
// leaves the end to conclude(). A step that ends before finish() has changed nothing.
class DeviceDecorator : public Coder {
 public:
  explicit DeviceDecorator(DecoratedCoder coder) : coder_(std::move(coder)) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) final {
    begun_ = false;
    GW_TRY(check("grad", grad));
    GW_TRY(correct(grad, step, stream));
    begun_ = true;
    return {};
  }
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) final {
    GW_TRY(check_begun("encode"));
    return inner().encode(round, payload, stream);
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) final {
    GW_TRY(check_begun("absorb"));
    return inner().absorb(round, payloads, stream);
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream) final {
    GW_TRY(check_begun("finish"));
    GW_TRY(check("mean", mean));
    if (!own.empty()) GW_TRY(check("own", own));
    begun_ = false;
    return conclude(mean, own, stream);
  }

 protected:
  // Begins the inner coder.
  virtual Status correct(ConstTensorView grad, std::uint64_t step, const Stream& stream) = 0;
  // Finishes it and moves to the next state; `own` may be empty.
  virtual Status conclude(TensorView mean, TensorView own, const Stream& stream) = 0;

  Coder& inner() const { return *coder_.inner; }
  Device device() const { return coder_.device; }
  std::int64_t elems() const { return coder_.shape.elems(); }
  TensorView view(std::byte* data) const {
    return {data, coder_.shape, DType::kF32, coder_.device};
  }
  TensorView view(const Buffer& data) const { return view(data.bytes().data()); }
  static float* floats(const Buffer& data) { return reinterpret_cast<float*>(data.bytes().data()); }
  static const float* floats(ConstTensorView data) {
    return reinterpret_cast<const float*>(data.data());
  }

  // FinitePass::run() over all elements.
  template <class Each>
  Status pass(const char* what, const Each& each, const Stream& stream) {
    return coder_.passes.run(what, each, 0, elems(), stream);
  }

  // `own`, then the inner coder's entries.
  std::vector<NamedTensor> with_inner(std::vector<NamedTensor> own) const {
    for (NamedTensor& entry : inner().state()) own.push_back(std::move(entry));
    return own;
  }

 private:
  Status check(const char* what, ConstTensorView tensor) const {
    return check_tensor_on(device(), std::string("error feedback: ") + what, tensor, elems(),
                           DType::kF32);
  }
  Status check_begun(const char* call) const {
    if (begun_) return {};
    return {Code::kInvalidArgument, format("error feedback: %s() without a begun step", call)};
  }

  DecoratedCoder coder_;
  bool begun_ = false;
};

}  // namespace gradwire::cuda
