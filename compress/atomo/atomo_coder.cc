#include "compress/atomo/atomo_coder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "base/text.h"
#include "compress/atomo/spectrum.h"
#include "compress/contract.h"
#include "compress/finite.h"
#include "compress/little_endian.h"

namespace gradwire {
namespace {

template <typename T>
class AtomoCoder final : public Coder {
 public:
  AtomoCoder(const Shape& shape, double budget, const Compressor::Placement& where)
      : elems_(shape.elems()), atoms_(atom_shape(shape)), budget_(budget), where_(where) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    turn_ = Turn::kBegin;
    GW_TRY(check_tensor("atomo: grad", grad, elems_, DTypeOf<T>::kValue));
    grad_ = grad.empty() ? std::span<const T>() : elements<T>(grad);
    step_ = step;
    turn_ = Turn::kEncode;
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_atomo_turn("encode", turn_ != Turn::kBegin && round == 0));
    GW_TRY(name_not_finite<T>("atomo", grad_));
    if (dense()) {
      GW_TRY(check_room("atomo: payload", payload.size(), grad_.size_bytes()));
      if (!grad_.empty()) std::memcpy(payload.data(), grad_.data(), grad_.size_bytes());
      return grad_.size_bytes();
    }
    return write_atoms(payload);
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_atomo_turn("absorb", turn_ != Turn::kBegin && round == 0));
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              format("atomo: %zu payloads (expected %d)", payloads.size(), where_.size)};
    }
    for (const ConstByteSpan payload : payloads) {
      GW_TRY(dense() ? check_values(payload) : check_atoms(payload));
    }
    payloads_.assign(payloads.begin(), payloads.end());
    turn_ = Turn::kFinish;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream&) override {
    GW_TRY(check_atomo_turn("finish", turn_ == Turn::kFinish));
    GW_TRY(check_tensor("atomo: mean", mean, elems_, DTypeOf<T>::kValue));
    if (!own.empty()) GW_TRY(check_tensor("atomo: own", own, elems_, DTypeOf<T>::kValue));
    turn_ = Turn::kBegin;
    if (mean.empty()) return {};
    if (!own.empty()) {
      const std::span<T> out = elements<T>(own);
      std::fill(out.begin(), out.end(), T{0});
      add(payloads_[static_cast<std::size_t>(where_.rank)], out);
    }
    const std::span<T> out = elements<T>(mean);
    std::fill(out.begin(), out.end(), T{0});
    for (const ConstByteSpan payload : payloads_) add(payload, out);
    const T factor = static_cast<T>(1.0 / where_.size);
    for (T& x : out) x *= factor;
    return {};
  }

  std::vector<NamedTensor> state() override { return {}; }

 private:
  enum class Turn : std::uint8_t { kBegin, kEncode, kFinish };

  bool dense() const { return atoms_.r == 0; }
  std::size_t atom_bytes() const { return atoms_.values() * sizeof(T); }

  Result<std::size_t> write_atoms(ByteSpan payload) const {
    GW_TRY(check_room("atomo: payload", payload.size(), kAtomCountBytes + atoms_.r * atom_bytes()));
    const Spectrum spectrum = spectrum_of<T>(grad_, atoms_.a, atoms_.c);
    const std::vector<double> chance = fill_with_water(spectrum.weight, budget_);
    const RandomStream draws(where_.seed, RandomUse::kAtoms, where_.tensor, where_.rank, 0, step_);
    std::uint32_t count = 0;
    std::size_t end = kAtomCountBytes;
    for (std::size_t k = 0; k < atoms_.r; ++k) {
      if ((draws.word(k) + 0.5) * 0x1p-32 >= chance[k]) continue;
      const T weight = static_cast<T>(spectrum.weight[k] / chance[k]);
      if (!std::isfinite(weight)) {
        return Status(Code::kInvalidArgument,
                      format("atomo: atom %zu weighs %g (expected a finite number)", k,
                             spectrum.weight[k] / chance[k]));
      }
      end = write(payload, end, weight);
      for (std::size_t i = 0; i < atoms_.a; ++i) {
        end = write(payload, end, static_cast<T>(spectrum.left[k * atoms_.a + i]));
      }
      for (std::size_t j = 0; j < atoms_.c; ++j) {
        end = write(payload, end, static_cast<T>(spectrum.right[k * atoms_.c + j]));
      }
      ++count;
    }
    std::memcpy(payload.data(), &count, sizeof count);
    return end;
  }

  static std::size_t write(ByteSpan payload, std::size_t at, T value) {
    store_le(payload.data() + at, value);
    return at + sizeof value;
  }
  static T value_at(ConstByteSpan payload, std::size_t index, std::size_t header) {
    return load_le<T>(payload.data() + header, index);
  }

  Status check_values(ConstByteSpan payload) const {
    GW_TRY(check_length("atomo", payload.size(), static_cast<std::size_t>(elems_) * sizeof(T)));
    for (std::size_t i = 0; i < static_cast<std::size_t>(elems_); ++i) {
      if (!std::isfinite(value_at(payload, i, 0))) return corrupt("value", i);
    }
    return {};
  }

  Status check_atoms(ConstByteSpan payload) const {
    std::uint32_t count = 0;
    if (payload.size() < sizeof count) return check_length("atomo", payload.size(), sizeof count);
    std::memcpy(&count, payload.data(), sizeof count);
    if (count > atoms_.r) {
      return {Code::kCorruptPayload,
              format("atomo: %u atoms (expected at most %zu)", count, atoms_.r)};
    }
    GW_TRY(check_length("atomo", payload.size(), kAtomCountBytes + count * atom_bytes()));
    for (std::size_t i = 0; i < count * atoms_.values(); ++i) {
      const double value = static_cast<double>(value_at(payload, i, kAtomCountBytes));
      const bool weight = i % atoms_.values() == 0;
      const bool sound =
          weight ? std::isfinite(value) && value >= 0 : std::abs(value) <= kMostAtomUnit;
      if (!sound) return corrupt(weight ? "weight" : "element of a unit vector", i);
    }
    return {};
  }

  static Status corrupt(const char* what, std::size_t i) {
    return {Code::kCorruptPayload,
            format("atomo: value %zu is no %s (expected finite and in range)", i, what)};
  }

  // out += what `payload` decodes to.
  void add(ConstByteSpan payload, std::span<T> out) const {
    if (dense()) {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += value_at(payload, i, 0);
      return;
    }
    const std::size_t count = (payload.size() - kAtomCountBytes) / atom_bytes();
    std::vector<T> right(atoms_.c);
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t first = k * atoms_.values();
      const T weight = value_at(payload, first, kAtomCountBytes);
      std::memcpy(right.data(),
                  payload.data() + kAtomCountBytes + (first + 1 + atoms_.a) * sizeof(T),
                  right.size() * sizeof(T));
      for (std::size_t i = 0; i < atoms_.a; ++i) {
        const T factor = weight * value_at(payload, first + 1 + i, kAtomCountBytes);
        T* row = &out[i * atoms_.c];
        for (std::size_t j = 0; j < atoms_.c; ++j) row[j] += factor * right[j];
      }
    }
  }

  std::int64_t elems_;
  AtomShape atoms_;
  double budget_;
  Compressor::Placement where_;
  std::span<const T> grad_;
  std::uint64_t step_ = 0;
  Turn turn_ = Turn::kBegin;
  std::vector<ConstByteSpan> payloads_;
};

}  // namespace

Status check_atomo_turn(const char* call, bool in_turn) {
  if (in_turn) return {};
  return {
      Code::kInvalidArgument,
      format("atomo: %s() out of turn (begin, encode and absorb of round 0, then finish)", call)};
}

AtomShape atom_shape(const Shape& shape) {
  if (shape.rank < 2 || shape.elems() == 0) return {};
  const auto a = static_cast<std::size_t>(shape.dim[0]);
  const std::size_t c = static_cast<std::size_t>(shape.elems()) / a;
  return {a, c, std::min(a, c)};
}

std::unique_ptr<Coder> make_atomo_coder(const Shape& shape, double budget,
                                        const Compressor::Placement& where) {
  if (where.dtype == DType::kF64) {
    return std::make_unique<AtomoCoder<double>>(shape, budget, where);
  }
  return std::make_unique<AtomoCoder<float>>(shape, budget, where);
}

}  // namespace gradwire
