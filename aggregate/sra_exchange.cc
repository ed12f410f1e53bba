// Scatter, reduce, all-gather. Every parameter is cut into one chunk per rank; rank i owns chunk i.
//
//   p = g + error                               error, error2: only with error feedback
//   stage 0   pack every chunk but one's own, each to its owner; error <- p - unpacked
//             (0 on the own chunk, which nobody packs)
//   acc = own p and the received chunks, added in rank order, + error2
//   stage 1   pack acc, to everybody; error2 <- acc - unpacked
//   mean = unpacked / size, the owner's own chunk included, so that replicas stay equal
//
// Invariant: sum of means + (sum over ranks of error + error2) / size == sum of average gradients.
// Where error feedback scales (1/(1+omega)), every `unpacked` above is multiplied by the scale. A
// majority vote counts its own chunk as signs, and its result is the vote: no division.
// A rank sends, with B(m) the packed bytes of m elements: sum of B over the others' chunks, then
// (size - 1) B(own chunk).
// Source of the second residual: Tang, Yu, Lian, Zhang, Liu, "DoubleSqueeze", ICML 2019, algorithm
// 1; here the server's part is cut over the ranks.
#include <algorithm>
#include <cmath>
#include <utility>

#include "aggregate/exchange.h"
#include "aggregate/residual.h"
#include "base/hash.h"
#include "base/text.h"
#include "compress/threaded_format.h"
#include "device/ops.h"
#include "gradwire/buffer.h"
#include "gradwire/schedule.h"
#include "gradwire/wire_format.h"

namespace gradwire {
namespace {

// One parameter under sra.
struct Part {
  const Parameter* parameter = nullptr;
  std::uint64_t key = 0;  // hash of the name
  std::unique_ptr<WireFormat> format;
  bool vote = false;
  Buffer error_buffer;   // empty without error feedback
  Buffer error2_buffer;  // of the own chunk
  Buffer acc_buffer;     // of the own chunk
  TensorView error;
  TensorView error2;
  TensorView acc;
};

// Where packed chunks stand in a buffer: by rank, then by part.
struct Layout {
  std::vector<std::int64_t> rank_bytes;
  std::vector<std::vector<Range>> slots;  // [rank][part]
  std::size_t total = 0;
};

class SraExchange final : public BucketExchange {
 public:
  SraExchange(const ExchangeContext& context, std::vector<Part> parts, Buffer decoded)
      : context_(context),
        rank_(context.communicator.rank()),
        size_(context.communicator.size()),
        parts_(std::move(parts)),
        decoded_(std::move(decoded)) {
    // Stage 0 sends each rank its chunks and receives one's own chunk from each; stage 1 receives
    // each rank's chunk.
    sent_ = lay_out([this](int r) { return r == rank_ ? -1 : r; }, 0);
    received_ = lay_out([this](int r) { return r == rank_ ? -1 : rank_; }, 0);
    results_ = lay_out([](int r) { return r; }, 1);
    send_.resize(std::max(sent_.total, static_cast<std::size_t>(results_.rank_bytes[me()])));
    receive_.resize(std::max(received_.total, results_.total));
  }

  int phases() const override { return 2; }

  Result<std::size_t> encode(int stage, std::uint64_t step) override {
    step_ = step;
    for (std::size_t t = 0; t < parts_.size(); ++t) {
      const Status status = stage == 0 ? pack_chunks(t) : pack_result(t);
      if (!status.ok()) return named(t, status);
    }
    return stage == 0 ? sent_.total : static_cast<std::size_t>(results_.rank_bytes[me()]);
  }

  Result<std::optional<Work>> issue(int stage) override {
    Communicator& communicator = context_.communicator;
    if (stage == 0) {
      if (size_ == 1) return std::optional<Work>();
      GW_ASSIGN(Work work, communicator.all_to_all_v(
                               ByteSpan(send_).first(sent_.total), sent_.rank_bytes,
                               ByteSpan(receive_).first(received_.total), received_.rank_bytes));
      return std::optional<Work>(std::move(work));
    }
    const auto own = static_cast<std::size_t>(results_.rank_bytes[me()]);
    GW_ASSIGN(Work work, communicator.all_gather_v(ByteSpan(send_).first(own),
                                                   ByteSpan(receive_).first(results_.total),
                                                   results_.rank_bytes));
    return std::optional<Work>(std::move(work));
  }

  Status absorb(int stage, std::uint64_t) override {
    for (std::size_t t = 0; t < parts_.size(); ++t) {
      const Status status = stage == 0 ? add_chunks(t) : unpack_results(t);
      if (!status.ok()) return named(t, status);
    }
    return {};
  }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> all;
    for (const Part& part : parts_) {
      if (!part.parameter->error_feedback) continue;
      all.push_back({part.parameter->name + ".error", part.error});
      all.push_back({part.parameter->name + ".error2", part.error2});
    }
    return all;
  }

 private:
  std::size_t me() const { return static_cast<std::size_t>(rank_); }

  Status named(std::size_t t, const Status& status) const {
    return status.with_context("parameter '" + parts_[t].parameter->name + "'");
  }

  Range chunk(const Part& part, int owner) const {
    return piece(part.parameter->grad.elems(), size_, owner);
  }

  // owner_of(r): whose chunks stand in rank r's place, -1 for none.
  template <typename OwnerOf>
  Layout lay_out(OwnerOf owner_of, int stage) const {
    Layout layout;
    std::int64_t end = 0;
    for (int r = 0; r < size_; ++r) {
      const std::int64_t begin = end;
      layout.slots.emplace_back();
      for (const Part& part : parts_) {
        const int owner = owner_of(r);
        const std::int64_t elems = owner < 0 ? 0 : chunk(part, owner).size();
        const auto bytes = static_cast<std::int64_t>(part.format->bytes(elems, stage));
        layout.slots.back().push_back({end, end + bytes});
        end += bytes;
      }
      layout.rank_bytes.push_back(end - begin);
    }
    layout.total = static_cast<std::size_t>(end);
    return layout;
  }

  static ByteSpan at(std::vector<std::byte>& buffer, Range slot) {
    return ByteSpan(buffer).subspan(static_cast<std::size_t>(slot.begin),
                                    static_cast<std::size_t>(slot.size()));
  }

  Slice slice(const Part& part, int packer, int stage, const Range& elems) const {
    return {step_, part.key, packer, stage, elems.begin};
  }

  TensorView decoded(std::int64_t elems, DType dtype) const {
    return decoded_.tensor(Shape::vector(elems), dtype);
  }

  // Packs `values` (elements `elems` of the parameter); with error feedback they become what the
  // packing cut off.
  Status pack(Part& part, TensorView values, const Range& elems, int stage, ByteSpan wire) {
    if (elems.size() == 0) return {};
    const Slice named_slice = slice(part, rank_, stage, elems);
    GW_ASSIGN(const std::size_t wrote, part.format->pack(values, named_slice, wire, {}));
    if (wrote != wire.size()) {
      return {Code::kInternal, format("packed %zu bytes (%zu claimed)", wrote, wire.size())};
    }
    if (!part.parameter->error_feedback) return {};
    const TensorView sent = decoded(elems.size(), values.dtype());
    GW_TRY(part.format->unpack(wire, named_slice, sent, {}));
    if (part.parameter->scale != 1) GW_TRY(scale(sent, part.parameter->scale, {}));
    return subtract(sent, values);
  }

  Status pack_chunks(std::size_t t) {
    Part& part = parts_[t];
    TensorView values = part.parameter->grad;
    if (part.parameter->error_feedback) {
      GW_TRY(add_gradient(part.parameter->grad, part.error));
      values = part.error;
    }
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const Range elems = chunk(part, r);
      GW_TRY(pack(part, values.slice(elems.begin, elems.size()), elems, 0,
                  at(send_, sent_.slots[static_cast<std::size_t>(r)][t])));
    }
    return {};
  }

  Status pack_result(std::size_t t) {
    Part& part = parts_[t];
    const Range own = chunk(part, rank_);
    const Range slot = results_.slots[me()][t];
    const std::int64_t start = results_.slots[me()][0].begin;
    const ByteSpan wire = at(send_, {slot.begin - start, slot.end - start});
    if (folds(part)) return fold_chunks(t, wire);
    GW_TRY(pack(part, part.acc, own, 1, wire));
    if (!part.parameter->error_feedback) return {};
    return copy_bytes(part.acc.bytes(), {}, part.error2.bytes(), {}, {});
  }

  // Whether sums go straight from the ranks' payloads into the result's.
  static bool folds(const Part& part) {
    return part.format->folds() && !part.vote && !part.parameter->error_feedback &&
           part.parameter->scale == 1;
  }

  Status fold_chunks(std::size_t t, ByteSpan wire) {
    Part& part = parts_[t];
    const Range own = chunk(part, rank_);
    std::vector<Addend> addends;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) {
        addends.push_back({part.parameter->grad.slice(own.begin, own.size()), {}, {}});
      } else {
        const ByteSpan chunk = at(receive_, received_.slots[static_cast<std::size_t>(r)][t]);
        addends.push_back({{}, chunk, slice(part, r, 0, own)});
      }
    }
    const Result<std::size_t> wrote =
        part.format->fold(addends, own.size(), slice(part, rank_, 1, own), wire, {});
    return wrote.has_value() ? Status() : wrote.error().with_context("chunks by rank");
  }

  // acc = own values and the received ones in rank order, + error2.
  Status add_chunks(std::size_t t) {
    Part& part = parts_[t];
    const Range own = chunk(part, rank_);
    if (own.size() == 0 || folds(part)) return {};
    for (int r = 0; r < size_; ++r) {
      GW_TRY(r == rank_ ? add_own(part, own, r == 0) : add_received(part, t, own, r));
    }
    if (!part.parameter->error_feedback) return {};
    GW_TRY(reduce(ReduceOp::kSum, part.error2, part.acc, {}));
    const ByteSpan kept = part.error.slice(own.begin, own.size()).bytes();
    std::fill(kept.begin(), kept.end(), std::byte{0});
    return {};
  }

  Status add_received(Part& part, std::size_t t, const Range& own, int r) {
    const ByteSpan wire = at(receive_, received_.slots[static_cast<std::size_t>(r)][t]);
    const Slice named_slice = slice(part, r, 0, own);
    Status status;
    if (r == 0 || part.parameter->scale == 1) {
      status = r == 0 ? part.format->unpack(wire, named_slice, part.acc, {})
                      : part.format->unpack_add(wire, named_slice, part.acc, {});
      if (status.ok() && part.parameter->scale != 1) {
        status = scale(part.acc, part.parameter->scale, {});
      }
    } else {
      const TensorView values = decoded(own.size(), part.acc.dtype());
      status = part.format->unpack(wire, named_slice, values, {});
      if (status.ok()) status = scale(values, part.parameter->scale, {});
      if (status.ok()) status = reduce(ReduceOp::kSum, values, part.acc, {});
    }
    return status.ok() ? status : status.with_context(format("chunk of rank %d", r));
  }

  Status add_own(Part& part, const Range& own, bool first) {
    const bool feedback = part.parameter->error_feedback;
    TensorView values = (feedback ? part.error : part.parameter->grad).slice(own.begin, own.size());
    if (part.vote) {  // one's own voice weighs as much as any other
      own_vote_.resize(part.format->bytes(own.size(), 0));
      const Slice named_slice = slice(part, rank_, 0, own);
      GW_ASSIGN(const std::size_t wrote, part.format->pack(values, named_slice, own_vote_, {}));
      values = decoded(own.size(), values.dtype());
      GW_TRY(part.format->unpack(ConstByteSpan(own_vote_).first(wrote), named_slice, values, {}));
    }
    if (first) return copy_bytes(values.bytes(), {}, part.acc.bytes(), {}, {});
    return reduce(ReduceOp::kSum, values, part.acc, {});
  }

  Status unpack_results(std::size_t t) {
    Part& part = parts_[t];
    const TensorView& grad = part.parameter->grad;
    for (int r = 0; r < size_; ++r) {
      const Range elems = chunk(part, r);
      if (elems.size() == 0) continue;
      const ByteSpan wire = at(receive_, results_.slots[static_cast<std::size_t>(r)][t]);
      const Status status = part.format->unpack(wire, slice(part, r, 1, elems),
                                                grad.slice(elems.begin, elems.size()), {});
      if (!status.ok()) return status.with_context(format("result of rank %d", r));
    }
    if (part.vote) return {};
    if (part.parameter->scale != 1) GW_TRY(scale(grad, part.parameter->scale, {}));
    return size_ == 1 ? Status() : scale(grad, 1.0 / size_, {});
  }

  const ExchangeContext& context_;
  int rank_;
  int size_;
  std::vector<Part> parts_;
  Buffer decoded_;  // one chunk's values
  Layout sent_, received_, results_;
  std::vector<std::byte> send_, receive_, own_vote_;
  std::uint64_t step_ = 0;
};

Result<Part> open_part(const ExchangeContext& context, const Parameter& parameter) {
  const TensorView& grad = parameter.grad;
  const int rank = context.communicator.rank();
  const int size = context.communicator.size();
  Part part;
  part.parameter = &parameter;
  part.key = hash_name(parameter.name);
  part.vote = !parameter.compressor->traits().mean_is_average_of_own;
  const Compressor::Placement where{.dtype = grad.dtype(),
                                    .device = grad.device(),
                                    .rank = rank,
                                    .size = size,
                                    .seed = parameter.seed,
                                    .tensor = part.key};
  GW_ASSIGN(part.format,
            open_slices_on(context.workers, *parameter.compressor, grad.shape(), where));
  const Shape own = Shape::vector(piece(grad.elems(), size, rank).size());
  const std::size_t own_bytes = static_cast<std::size_t>(own.elems()) * size_of(grad.dtype());
  GW_ASSIGN(part.acc_buffer, Buffer::allocate(own_bytes));
  part.acc = part.acc_buffer.tensor(own, grad.dtype());
  if (!parameter.error_feedback) return part;
  GW_ASSIGN(part.error_buffer, Buffer::allocate(grad.bytes().size()));
  GW_ASSIGN(part.error2_buffer, Buffer::allocate(own_bytes));
  part.error = part.error_buffer.tensor(grad.shape(), grad.dtype());
  part.error2 = part.error2_buffer.tensor(own, grad.dtype());
  return part;
}

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_sra_exchange(const ExchangeContext& context,
                                                          Members members) {
  std::vector<Part> parts;
  std::size_t most = 0;
  for (const Parameter* member : members) {
    auto part = open_part(context, *member);
    if (!part.has_value()) return part.error().with_context("parameter '" + member->name + "'");
    const Range largest = piece(member->grad.elems(), context.communicator.size(), 0);
    most = std::max(most, static_cast<std::size_t>(largest.size()) * size_of(member->grad.dtype()));
    parts.push_back(std::move(part).value());
  }
  GW_ASSIGN(Buffer decoded, Buffer::allocate(most));
  return std::unique_ptr<BucketExchange>(
      std::make_unique<SraExchange>(context, std::move(parts), std::move(decoded)));
}

}  // namespace gradwire
