// A method on a device as one on the host: what is given is copied there, what comes out is copied
// back, so that the laws of compressors hold it to the same claims.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/memory_calls.h"
#include "device/ops.h"
#include "gradwire/buffer.h"
#include "gradwire/compressor.h"
#include "tests/gpu/on_device.h"

namespace gradwire::gpu {

// The device that the host plays has one thread; laws have several.
inline std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

inline Result<Buffer> put_there(ConstByteSpan bytes) {
  GW_ASSIGN(Buffer there, Buffer::allocate(bytes.size(), kFirst));
  GW_TRY(copy_bytes(bytes, Device{}, there.bytes().first(bytes.size()), kFirst, kStream));
  return Result<Buffer>(std::move(there));
}
inline Status fetch(ConstByteSpan there, ByteSpan bytes) {
  GW_TRY(copy_bytes(there.first(bytes.size()), kFirst, bytes, Device{}, kStream));
  return cuda::synchronize(kStream);
}

// Where a host's tensor lies there.
template <typename Tensor>
TensorView placed(const Buffer& there, const Tensor& here) {
  return {there.bytes().data(), here.shape(), here.dtype(), kFirst};
}

class HostedFormat final : public WireFormat {
 public:
  explicit HostedFormat(std::unique_ptr<WireFormat> there) : there_(std::move(there)) {}

  std::size_t bytes(std::int64_t elems, int stage) const override {
    return there_->bytes(elems, stage);
  }
  std::int64_t seam(int stage) const override { return there_->seam(stage); }
  std::vector<std::size_t> sections(std::int64_t elems, int stage) const override {
    return there_->sections(elems, stage);
  }
  Result<std::size_t> pack(ConstTensorView src, const Slice& slice, ByteSpan wire,
                           const Stream&) override {
    const std::lock_guard lock(one_at_a_time());
    GW_ASSIGN(const Buffer from, put_there(src.bytes()));
    GW_ASSIGN(const Buffer to, Buffer::allocate(wire.size(), kFirst));
    GW_ASSIGN(const std::size_t wrote,
              there_->pack(placed(from, src), slice, to.bytes().first(wire.size()), kStream));
    GW_TRY(fetch(to.bytes(), wire.first(wrote)));
    return wrote;
  }
  bool takes_feedback() const override { return there_->takes_feedback(); }
  Result<std::size_t> pack_with_feedback(ConstTensorView src, const Feedback& feedback,
                                         const Slice& slice, ByteSpan wire,
                                         const Stream&) override {
    const std::lock_guard lock(one_at_a_time());
    GW_ASSIGN(const Buffer from, put_there(src.bytes()));
    GW_ASSIGN(const Buffer residual, put_there(feedback.residual.bytes()));
    GW_ASSIGN(const Buffer next, put_there(feedback.next.bytes()));
    GW_ASSIGN(const Buffer to, Buffer::allocate(wire.size(), kFirst));
    const Feedback kept{placed(residual, feedback.residual), placed(next, feedback.next),
                        feedback.scale};
    GW_ASSIGN(const std::size_t wrote,
              there_->pack_with_feedback(placed(from, src), kept, slice,
                                         to.bytes().first(wire.size()), kStream));
    GW_TRY(fetch(to.bytes(), wire.first(wrote)));
    GW_TRY(fetch(next.bytes(), feedback.next.bytes()));
    return wrote;
  }
  Status unpack(ConstByteSpan wire, const Slice& slice, TensorView dst, const Stream&) override {
    return unpacked(wire, slice, dst, false);
  }
  Status unpack_add(ConstByteSpan wire, const Slice& slice, TensorView acc,
                    const Stream&) override {
    return unpacked(wire, slice, acc, true);
  }

 private:
  Status unpacked(ConstByteSpan wire, const Slice& slice, TensorView dst, bool add) {
    const std::lock_guard lock(one_at_a_time());
    GW_ASSIGN(const Buffer from, put_there(wire));
    GW_ASSIGN(const Buffer to, put_there(dst.bytes()));
    const ConstByteSpan payload = from.bytes().first(wire.size());
    GW_TRY(add ? there_->unpack_add(payload, slice, placed(to, dst), kStream)
               : there_->unpack(payload, slice, placed(to, dst), kStream));
    return fetch(to.bytes(), dst.bytes());
  }

  std::unique_ptr<WireFormat> there_;
};

class HostedCoder final : public Coder {
 public:
  explicit HostedCoder(std::unique_ptr<Coder> there) : there_(std::move(there)) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    const std::lock_guard lock(one_at_a_time());
    GW_TRY(bring(grad));
    return there_->begin(placed(grad_, grad), step, kStream);
  }
  bool takes_feedback() const override { return there_->takes_feedback(); }
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step,
                             const Stream&) override {
    const std::lock_guard lock(one_at_a_time());
    GW_TRY(bring(grad));
    GW_ASSIGN(residual_, put_there(feedback.residual.bytes()));
    GW_ASSIGN(next_, put_there(feedback.next.bytes()));
    next_here_ = feedback.next;
    return there_->begin_with_feedback(
        placed(grad_, grad),
        {placed(residual_, feedback.residual), placed(next_, feedback.next), feedback.scale}, step,
        kStream);
  }
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    const std::lock_guard lock(one_at_a_time());
    GW_ASSIGN(const Buffer to, Buffer::allocate(payload.size(), kFirst));
    GW_ASSIGN(const std::size_t wrote,
              there_->encode(round, to.bytes().first(payload.size()), kStream));
    GW_TRY(fetch(to.bytes(), payload.first(wrote)));
    return wrote;
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    const std::lock_guard lock(one_at_a_time());
    std::vector<ConstByteSpan> there;
    for (const ConstByteSpan payload : payloads) {
      GW_ASSIGN(Buffer copy, put_there(payload));
      there.push_back(copy.bytes().first(payload.size()));
      received_.push_back(std::move(copy));
    }
    return there_->absorb(round, there, kStream);
  }
  Status finish(TensorView mean, TensorView own, const Stream&) override {
    const std::lock_guard lock(one_at_a_time());
    GW_ASSIGN(const Buffer mean_there, put_there(mean.bytes()));
    GW_ASSIGN(const Buffer own_there, put_there(own.bytes()));
    const TensorView own_view = own.empty() ? TensorView() : placed(own_there, own);
    GW_TRY(there_->finish(placed(mean_there, mean), own_view, kStream));
    received_.clear();
    GW_TRY(fetch(mean_there.bytes(), mean.bytes()));
    GW_TRY(fetch(own_there.bytes(), own.bytes()));
    return next_here_.empty() ? Status() : fetch(next_.bytes(), next_here_.bytes());
  }
  // What is written there goes to the device with the next begin().
  std::vector<NamedTensor> state() override {
    const std::lock_guard lock(one_at_a_time());
    const std::vector<NamedTensor> there = there_->state();
    state_.assign(there.size(), {});
    std::vector<NamedTensor> all;
    for (std::size_t i = 0; i < there.size(); ++i) {
      state_[i].resize(there[i].tensor.bytes().size());
      EXPECT_TRUE(fetch(there[i].tensor.bytes(), state_[i]).ok());
      all.push_back(
          {there[i].name, {state_[i].data(), there[i].tensor.shape(), there[i].tensor.dtype()}});
    }
    return all;
  }

 private:
  Status bring(ConstTensorView grad) {
    const std::vector<NamedTensor> there = there_->state();
    for (std::size_t i = 0; i < state_.size(); ++i) {
      GW_TRY(copy_bytes(state_[i], Device{}, there[i].tensor.bytes(), kFirst, kStream));
    }
    GW_TRY(cuda::synchronize(kStream));
    state_.clear();
    received_.clear();
    next_here_ = {};
    GW_ASSIGN(grad_, put_there(grad.bytes()));
    return {};
  }

  std::unique_ptr<Coder> there_;
  Buffer grad_;
  Buffer residual_;
  Buffer next_;
  TensorView next_here_;
  std::vector<Buffer> received_;
  std::vector<std::vector<std::byte>> state_;
};

// A method whose coders lie on the device; a second stage's formats, too, where a first one there
// asks for them.
class HostedMethod final : public Compressor {
 public:
  using Decorate = std::function<Result<std::unique_ptr<Coder>>(
      std::unique_ptr<Coder> inner, const Shape& shape, const Placement& where)>;
  explicit HostedMethod(std::unique_ptr<Compressor> method, Decorate decorate = nullptr)
      : method_(std::move(method)), decorate_(std::move(decorate)) {}

  std::string spec() const override { return method_->spec(); }
  Traits traits() const override { return method_->traits(); }
  ErrorBound bound(const Shape& shape) const override { return method_->bound(shape); }
  RoundKind round_kind(int round, DType dtype, int size) const override {
    return method_->round_kind(round, dtype, size);
  }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int round,
                                int size) const override {
    return method_->max_payload_bytes(shape, dtype, round, size);
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_TRY(from_the_host(where));
    const std::lock_guard lock(one_at_a_time());
    const Placement there = on_first(where);
    GW_ASSIGN(auto coder, method_->open(shape, there));
    if (decorate_) {
      GW_ASSIGN(coder, decorate_(std::move(coder), shape, there));
    }
    return std::unique_ptr<Coder>(std::make_unique<HostedCoder>(std::move(coder)));
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape& shape,
                                                  const Placement& where) const override {
    if (where.device.space == MemorySpace::kCuda) return method_->open_slices(shape, where);
    GW_ASSIGN(auto format, method_->open_slices(shape, on_first(where)));
    return std::unique_ptr<WireFormat>(std::make_unique<HostedFormat>(std::move(format)));
  }

 private:
  static Status from_the_host(const Placement& where) {
    if (where.device.space == MemorySpace::kHost) return {};
    return {Code::kUnsupported, "a hosted method (a placement on the host wanted)"};
  }
  static Placement on_first(Placement where) {
    where.device = kFirst;
    return where;
  }

  std::unique_ptr<Compressor> method_;
  Decorate decorate_;
};

}  // namespace gradwire::gpu
