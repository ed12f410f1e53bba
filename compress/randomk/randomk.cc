#include "compress/randomk/randomk.h"

#include <string>
#include <utility>

#include "base/philox.h"
#include "compress/contract.h"
#include "compress/randomk/places.h"
#include "compress/randomk/randomk_device.h"
#include "compress/sparse/chosen_count.h"
#include "compress/sparse/shared_choice.h"
#include "compress/sparse/sparse_coding.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

template <typename T>
class RandomkCoder final : public Coder {
 public:
  RandomkCoder(SharedChoice<T> choice, bool exact, const Shape& shape,
               const Compressor::Placement& where)
      : choice_(std::move(choice)),
        exact_(exact),
        elems_(static_cast<std::size_t>(shape.elems())),
        where_(where) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    return choice_.begin(grad, step);
  }
  bool takes_feedback() const override { return exact_; }
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step,
                             const Stream&) override {
    return choice_.begin_with_feedback(grad, feedback, step);
  }
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round("randomk", round, 1));
    draw_places({where_.seed, RandomUse::kPlaces, where_.tensor, kSharedRank, 0, choice_.step()},
                elems_, choice_.places(), seen_);
    return choice_.encode(payload, stream);
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_round("randomk", round, 1));
    return choice_.absorb(payloads, stream);
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    return choice_.finish(mean, own, stream);
  }
  std::vector<NamedTensor> state() override { return {}; }

 private:
  SharedChoice<T> choice_;
  bool exact_;
  std::size_t elems_;
  Compressor::Placement where_;
  std::vector<std::uint64_t> seen_;
};

class Randomk final : public Compressor {
 public:
  Randomk(ChosenCount count, bool unbiased, std::shared_ptr<const Compressor> values)
      : count_(count),
        unbiased_(unbiased),
        options_{.values = values},
        values_(std::move(values)) {}

  std::string spec() const override {
    return "randomk:" + count_.text() + (unbiased_ ? ",unbiased=true" : "") + spec_end(options_);
  }
  Traits traits() const override {
    Traits traits{.exchange = values_.round_kind(DType::kF32).exchange,
                  .payload_dtype = values_.round_kind(DType::kF32).payload,
                  .sparse = true,
                  .unbiased = unbiased_,
                  .needs_error_feedback = !unbiased_,
                  .bitwise_on_all_devices = true};
    if (options_.values == nullptr) return traits;
    const Traits second = options_.values->traits();
    traits.unbiased = unbiased_ && second.unbiased;
    traits.bitwise_on_all_devices = second.bitwise_on_all_devices;
    return traits;
  }
  RoundKind round_kind(int, DType dtype, int) const override { return values_.round_kind(dtype); }
  ErrorBound bound(const Shape& shape) const override {
    const double share = count_.share(shape.elems());
    const ErrorBound first = unbiased_ ? ErrorBound{ErrorBound::Kind::kVariance, 1 / share - 1}
                                       : ErrorBound{ErrorBound::Kind::kContraction, share};
    return bound_with_values(first, options_, count_.of(shape.elems()));
  }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    return values_.bytes(count_.of(shape.elems()), dtype);
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        const std::size_t k = count_.of(shape.elems());
        GW_ASSIGN(auto inner, values_.open(k, where));
        return cuda::make_randomk_coder({k, factor<float>(shape), values_.exact()},
                                        std::move(inner), shape, where);
      }
    }
    GW_TRY(check_placement("randomk", where));
    GW_TRY(check_index_range("randomk", shape));
    return where.dtype == DType::kF64 ? open_typed<double>(shape, where)
                                      : open_typed<float>(shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported,
                  "randomk: samples from all elements of a tensor and has no slices; use "
                  "combine=sum or combine=gather");
  }

 private:
  template <typename T>
  T factor(const Shape& shape) const {
    return static_cast<T>(unbiased_ ? 1 / count_.share(shape.elems()) : 1.0);
  }
  template <typename T>
  Result<std::unique_ptr<Coder>> open_typed(const Shape& shape, const Placement& where) const {
    const std::size_t k = count_.of(shape.elems());
    GW_ASSIGN(auto inner, values_.open(k, where));
    return std::unique_ptr<Coder>(std::make_unique<RandomkCoder<T>>(
        SharedChoice<T>("randomk", std::move(inner), k, shape, where, factor<T>(shape)),
        values_.exact(), shape, where));
  }

  ChosenCount count_;
  bool unbiased_;
  SparseOptions options_;
  ChosenValues values_;
};

Result<std::unique_ptr<Compressor>> make_composed_randomk(
    const Spec& spec, std::shared_ptr<const Compressor> values) {
  const SpecReader reader(spec);
  GW_ASSIGN(const ChosenCount count, ChosenCount::read(reader, "randomk"));
  GW_ASSIGN(const bool unbiased, reader.boolean("unbiased", false));
  return std::unique_ptr<Compressor>(std::make_unique<Randomk>(count, unbiased, std::move(values)));
}

Result<std::unique_ptr<Compressor>> make_randomk(const Spec& spec) {
  return make_composed_randomk(spec, nullptr);
}

}  // namespace

Registry::Method randomk_method() {
  std::vector<SpecKey> keys = ChosenCount::keys();
  keys.push_back({"unbiased", "false",
                  "true: values are multiplied by elements/k (without error feedback); false: as "
                  "they are (with error feedback)"});
  return {"randomk",    "k elements at random places, the same on all ranks; no indices",
          "",           std::move(keys),
          make_randomk, make_composed_randomk};
}

}  // namespace gradwire
