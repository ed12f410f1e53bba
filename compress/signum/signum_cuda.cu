// signum on a device.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "compress/contract.h"
#include "compress/cuda/eight.h"
#include "compress/cuda/placed_coder.h"
#include "compress/signsgd/vote_count.h"
#include "compress/signum/signum_device.h"
#include "compress/signum/signum_kernels.h"
#include "device/cuda/memory.h"
#include "gradwire/buffer.h"

namespace gradwire::cuda {
namespace {

inline constexpr unsigned kSignumNotFinite = 1;

// The next momentum, its signs and which blocks of it are zero: a warp for each block of 256, eight
// elements a lane. Memory: 4 bytes an element in and 1/8 out; with a momentum 8 in, and 4 more out.
struct SignumBlocks {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kElems = kThreads * kEight;
  static_assert(kSignumBlock == 32 * kEight);
  struct Shared {
    std::uint32_t zero[kThreads / 32];
  };

  Source grad;
  Source momentum;  // none: signs are the gradient's
  float beta;
  float* next;  // momentum; null: it has this gradient already
  std::byte* wire;
  std::int64_t zero_bytes;
  bool packed;  // all floats begin at 16 bytes
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t begin = block.block() * kElems + kEight * block.thread();
    const int count = eight_or(begin, grad.count);
    float m[kEight];
    if (next == nullptr && momentum.grad != nullptr) {
      Eight::read(momentum, begin, count, packed, m);
    } else {
      Eight::read(grad, begin, count, packed, m);
      see(block, begin, count, m);
    }
    if (next != nullptr) {
      float before[kEight];
      Eight::read(momentum, begin, count, packed, before);
      const float fresh = 1.0f - beta;
      for (int j = 0; j < kEight; ++j) m[j] = fresh * m[j] + beta * before[j];
      Eight::write(next + begin, count, packed, m);
    }
    std::uint32_t any = 0;
    unsigned minus = 0;
    for (int j = 0; j < kEight; ++j) {
      if (j >= count) continue;
      any |= std::bit_cast<std::uint32_t>(m[j]) << 1;  // -0 is zero too
      minus |= (m[j] < 0 ? 1u : 0u) << j;
    }
    if (count > 0) wire[zero_bytes + begin / 8] = static_cast<std::byte>(minus);
    const bool zero = !block.any(any != 0);
    if (block.lane() == 0) shared.zero[block.warp()] = zero && count > 0 ? 1 : 0;
    block.barrier();
    if (block.thread() != 0) return;
    unsigned zeros = 0;
    for (unsigned w = 0; w < kThreads / 32; ++w) zeros |= shared.zero[w] << w;
    wire[block.block()] = static_cast<std::byte>(zeros);
  }

  template <class Block>
  GW_DEVICE void see(Block& block, std::int64_t begin, int count, const float* g) const {
    for (int j = 0; j < kEight; ++j) {
      if (j >= count || is_finite(g[j])) continue;
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin + j), kSignumNotFinite));
    }
  }
};

class SignumDeviceCoder final : public PlacedCoder {
 public:
  SignumDeviceCoder(const std::string& name, double beta, const Shape& shape,
                    const Compressor::Placement& where, Buffer momentum, Buffer next,
                    Verdict verdict)
      : PlacedCoder(name, shape.elems(), where.device, DType::kF32),
        beta_(static_cast<float>(beta)),
        shape_(shape),
        where_(where),
        momentum_(std::move(momentum)),
        next_(std::move(next)),
        verdict_(std::move(verdict)) {}

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round(method_, round, 1));
    const std::size_t count = bytes();
    GW_TRY(check_room(method_ + ": payload", payload.size(), count));
    if (elems_ == 0) return count;
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_TRY(verdict_.clear(stream));
    GW_TRY(write(payload.data(), stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind != 0) {
      return Status(Code::kInvalidArgument,
                    method_ + format(": element %llu is not finite (expected finite numbers)",
                                     static_cast<unsigned long long>(finding.place)));
    }
    if (keeps_momentum() && !updated_) std::swap(momentum_, next_);
    updated_ = true;
    return count;
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round(method_, round, 1));
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              method_ + format(": %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      GW_TRY(
          check_length(method_ + format(": payload of rank %zu", r), payloads[r].size(), bytes()));
    }
    payloads_.assign(payloads.begin(), payloads.end());
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check("mean", mean));
    if (payloads_.empty()) return {Code::kInvalidArgument, method_ + ": finish() before absorb()"};
    if (!own.empty()) GW_TRY(check("own", own));
    if (mean.empty()) return {};
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_TRY(verdict_.clear(stream));
    const std::span<const ConstByteSpan> all(payloads_);
    if (!own.empty()) {
      GW_TRY(count(all.subspan(static_cast<std::size_t>(where_.rank), 1), own, stream));
    }
    GW_TRY(count(all, mean, stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind == 0) return {};
    return {
        Code::kCorruptPayload,
        method_ + format(": payload of rank %llu: unused bits of a last byte are set (expected 0)",
                         static_cast<unsigned long long>(finding.place))};
  }

  std::vector<NamedTensor> state() override {
    if (!keeps_momentum()) return {};
    return {{"residual_momentum", {momentum_.bytes().data(), shape_, DType::kF32, where_.device}}};
  }

 private:
  void forget() override {
    updated_ = false;
    payloads_.clear();
  }
  bool keeps_momentum() const { return beta_ != 0; }
  std::size_t bytes() const { return signum_bytes(static_cast<std::size_t>(elems_)); }
  std::int64_t zero_bytes() const {
    return static_cast<std::int64_t>(signum_zero_bytes(static_cast<std::size_t>(elems_)));
  }

  Status write(std::byte* wire, const Stream& stream) {
    const Source grad = source_of(grad_, {});
    const Source momentum{.grad = keeps_momentum()
                                      ? reinterpret_cast<const float*>(momentum_.bytes().data())
                                      : nullptr,
                          .count = elems_};
    const bool updates = keeps_momentum() && !updated_;
    const SignumBlocks kernel{grad,
                              momentum,
                              beta_,
                              updates ? reinterpret_cast<float*>(next_.bytes().data()) : nullptr,
                              wire,
                              zero_bytes(),
                              starts_at(grad.grad, 16),
                              verdict_.word()};
    return launch("signum: encode", kernel, blocks_for(elems_, SignumBlocks::kElems), stream);
  }
  Status count(std::span<const ConstByteSpan> payloads, TensorView dst, const Stream& stream) {
    return count_votes("signum: count", payloads, zero_bytes(), dst, verdict_.word(), stream);
  }

  float beta_;
  Shape shape_;
  Compressor::Placement where_;
  Buffer momentum_;
  Buffer next_;  // momentum, of a step that may be refused
  Verdict verdict_;
  bool updated_ = false;  // the momentum holds this step's gradient
  std::vector<ConstByteSpan> payloads_;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_signum_coder(const std::string& name, double beta,
                                                 const Shape& shape,
                                                 const Compressor::Placement& where) {
  GW_TRY(check_device_placement(name, where));
  const std::size_t room = beta == 0 ? 0 : static_cast<std::size_t>(shape.elems()) * sizeof(float);
  GW_ASSIGN(Buffer momentum, Buffer::allocate(room, where.device));
  GW_ASSIGN(Buffer next, Buffer::allocate(room, where.device));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return std::unique_ptr<Coder>(std::make_unique<SignumDeviceCoder>(
      name, beta, shape, where, std::move(momentum), std::move(next), std::move(verdict)));
}

}  // namespace gradwire::cuda
