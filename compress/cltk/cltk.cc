#include "compress/cltk/cltk.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "compress/cltk/cltk_device.h"
#include "compress/contract.h"
#include "compress/little_endian.h"
#include "compress/sparse/chosen_count.h"
#include "compress/sparse/shared_choice.h"
#include "compress/sparse/sparse_coding.h"
#include "compress/spec_reader.h"
#include "compress/topk/topk_kernels.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr int kRounds = 2;

// Of k > 0 places: codings whose length depends on the places are preceded by k, because what is
// left of one that was cut short may be another's whole.
std::size_t head_bytes(IndexCoding coding) { return has_fixed_length(coding) ? 0 : 4; }

std::size_t most_choice_bytes(IndexCoding coding, std::size_t k, std::size_t elems) {
  return k == 0 ? 0 : head_bytes(coding) + most_index_bytes(coding, k, elems);
}

template <typename T>
class CltkCoder final : public Coder {
 public:
  CltkCoder(SharedChoice<T> choice, bool exact, IndexCoding coding, const Shape& shape,
            const Compressor::Placement& where)
      : choice_(std::move(choice)),
        exact_(exact),
        coding_(coding),
        elems_(static_cast<std::size_t>(shape.elems())),
        where_(where) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    chosen_ = false;
    return choice_.begin(grad, step);
  }
  bool takes_feedback() const override { return exact_; }
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step,
                             const Stream&) override {
    chosen_ = false;
    return choice_.begin_with_feedback(grad, feedback, step);
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round("cltk", round, kRounds));
    if (round == 1) {
      if (chosen_) return choice_.encode(payload, stream);
      return Status(Code::kInvalidArgument, "cltk: encode(1) before absorb(0)");
    }
    if (where_.rank != leader() || k() == 0) return std::size_t{0};
    GW_TRY(check_room("cltk: payload", payload.size(), most_choice_bytes(coding_, k(), elems_)));
    pairs_.resize(k() * (kTopkIndexBytes + sizeof(T)));
    cpu::topk_encode<T>(choice_.corrected(), nullptr, T{1}, k(), scratch_, pairs_);
    std::memcpy(choice_.places().data(), pairs_.data(), choice_.places().size_bytes());
    const std::size_t head = head_bytes(coding_);
    if (head > 0) store_le(payload.data(), static_cast<std::uint32_t>(k()));
    return head + encode_indices(coding_, choice_.places(), elems_, payload.subspan(head));
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_round("cltk", round, kRounds));
    if (round == 1) return choice_.absorb(payloads, stream);
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              format("cltk: %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    for (int rank = 0; rank < where_.size; ++rank) {
      const ConstByteSpan from = payloads[static_cast<std::size_t>(rank)];
      const Status status =
          rank == leader() ? read_choice(from) : check_length("a choice", from.size(), 0);
      if (status.ok()) continue;
      return status.with_context(
          format("cltk: payload of rank %d (rank %d leads)", rank, leader()));
    }
    chosen_ = true;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    return choice_.finish(mean, own, stream);
  }
  std::vector<NamedTensor> state() override { return {}; }

 private:
  std::size_t k() { return choice_.places().size(); }
  int leader() const {
    return static_cast<int>(choice_.step() % static_cast<std::uint64_t>(where_.size));
  }
  Status read_choice(ConstByteSpan payload) {
    const std::size_t head = k() == 0 ? 0 : head_bytes(coding_);
    if (head > 0) {
      if (payload.size() < head) {
        return {Code::kCorruptPayload,
                format("%zu bytes (expected a count of %zu)", payload.size(), head)};
      }
      const std::size_t count = load_le<std::uint32_t>(payload.data());
      if (count != k()) {
        return {Code::kCorruptPayload, format("%zu places (expected %zu)", count, k())};
      }
      payload = payload.subspan(head);
    }
    GW_ASSIGN(const std::size_t read, decode_indices(coding_, payload, elems_, choice_.places()));
    return check_length("a choice", payload.size(), read);
  }

  SharedChoice<T> choice_;
  bool exact_;
  IndexCoding coding_;
  std::size_t elems_;
  Compressor::Placement where_;
  bool chosen_ = false;  // the leader's places of this step are known
  TopkScratch<T> scratch_;
  std::vector<std::byte> pairs_;  // the leader's own
};

class Cltk final : public Compressor {
 public:
  Cltk(ChosenCount count, SparseOptions options)
      : count_(count), options_(std::move(options)), values_(options_.values) {}

  std::string spec() const override { return "cltk:" + count_.text() + spec_end(options_); }
  Traits traits() const override {
    const RoundKind sum = values_.round_kind(DType::kF32);
    const bool anywhere = !options_.values || options_.values->traits().bitwise_on_all_devices;
    return {.exchange = sum.exchange,
            .rounds = kRounds,
            .payload_dtype = sum.payload,
            .fixed_payload = false,
            .sparse = true,
            .bitwise_on_all_devices = anywhere};
  }
  RoundKind round_kind(int round, DType dtype, int) const override {
    return round == 0 ? RoundKind{.fixed = false} : values_.round_kind(dtype);
  }
  ErrorBound bound(const Shape& shape) const override {
    return bound_with_values({ErrorBound::Kind::kContraction, 0}, options_,
                             count_.of(shape.elems()));
  }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int round, int) const override {
    const std::size_t k = count_.of(shape.elems());
    if (round > 0) return values_.bytes(k, dtype);
    return most_choice_bytes(options_.index, k, static_cast<std::size_t>(shape.elems()));
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        const std::size_t k = count_.of(shape.elems());
        GW_ASSIGN(auto inner, values_.open(k, where));
        return cuda::make_cltk_coder({k, options_.index, values_.exact()}, std::move(inner), shape,
                                     where);
      }
    }
    GW_TRY(check_placement("cltk", where));
    GW_TRY(check_index_range("cltk", shape, kMostSparseElems - 1));  // so that k has 32 bits
    return where.dtype == DType::kF64 ? open_typed<double>(shape, where)
                                      : open_typed<float>(shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported,
                  "cltk: a rank chooses among all elements of a tensor, so that it has no slices; "
                  "use combine=sum or combine=gather");
  }

 private:
  template <typename T>
  Result<std::unique_ptr<Coder>> open_typed(const Shape& shape, const Placement& where) const {
    const std::size_t k = count_.of(shape.elems());
    GW_ASSIGN(auto inner, values_.open(k, where));
    return std::unique_ptr<Coder>(
        std::make_unique<CltkCoder<T>>(SharedChoice<T>("cltk", std::move(inner), k, shape, where),
                                       values_.exact(), options_.index, shape, where));
  }

  ChosenCount count_;
  SparseOptions options_;
  ChosenValues values_;
};

Result<std::unique_ptr<Compressor>> make_composed_cltk(const Spec& spec,
                                                       std::shared_ptr<const Compressor> values) {
  const SpecReader reader(spec);
  GW_ASSIGN(const ChosenCount count, ChosenCount::read(reader, "cltk"));
  GW_ASSIGN(const IndexCoding index, read_index_key(reader));
  return std::unique_ptr<Compressor>(
      std::make_unique<Cltk>(count, SparseOptions{index, std::move(values)}));
}

Result<std::unique_ptr<Compressor>> make_cltk(const Spec& spec) {
  return make_composed_cltk(spec, nullptr);
}

}  // namespace

Registry::Method cltk_method() {
  std::vector<SpecKey> keys = ChosenCount::keys();
  keys.push_back(index_key());
  return {"cltk",    "elements at k places, chosen by one rank at a time for all",
          "",        std::move(keys),
          make_cltk, make_composed_cltk};
}

}  // namespace gradwire
