// O(k) sparse all-reduce. Elements of a bucket count as one vector, whose indices are cut into one
// region per rank.
//
//   0    quantiles of the chosen indices, averaged over ranks: regions of about equally many pairs
//        (every 64 steps; what is computed does not depend on them)
//   1    how many pairs every rank has for every other; k = the most that one rank chose, by tensor
//   2    pairs to their region's owner, who adds them up in rank order; a region that takes fewer
//        bytes as it is than in pairs travels as it is
//   3-5  counts of magnitudes: which sums are among the k largest (shared_selection.h)
//   6    how many of them every owner has
//   7    pairs from owners with too many to others, where one has over twice its part
//   8    all-gather-v of pairs; mean = sums / size
//
// A tensor of which k pairs would take more bytes than all its elements is full: its sums are not
// chosen from, and travel as they are in 8. Every rank keeps as residual what it did not choose and
// what it chose but the owners left out: with error feedback nothing is lost. With words of 4 bytes
// and fp32 gradients all ranks together send at most 6k(n-1) words in 2, 7 and 8 where regions
// are balanced, usually 4k(n-1), and small change: of t tensors that are not full 3 all-reduces of
// 32 t words, and a word or two for every tensor or pair of ranks in 0, 1 and 6.
// Source: Li, Hoefler, "Near-optimal sparse allreduce for distributed deep learning", PPoPP 2022.
// There thresholds are estimated and reused; here they are found anew, by counts, at every step.
//
// Of tensors on a device the choice, error feedback and the means are made there; pairs and sums
// are the host's, and travel as messages.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "aggregate/all_on_workers.h"
#include "aggregate/exchange.h"
#include "aggregate/oktopk_tensor.h"
#include "aggregate/region_reduce.h"
#include "base/elements.h"
#include "base/text.h"

namespace gradwire {
namespace {

template <typename T>
class OkTopkExchange final : public BucketExchange {
 public:
  OkTopkExchange(const ExchangeContext& context, std::vector<OkTopkTensor<T>> tensors)
      : context_(context),
        communicator_(context.communicator),
        workers_(context.workers),
        rank_(static_cast<std::size_t>(communicator_.rank())),
        size_(static_cast<std::size_t>(communicator_.size())),
        tensors_(std::move(tensors)),
        elems_(tensors_.back().end),
        reduce_(communicator_, elems_),
        most_(tensors_.size()) {}

  int phases() const override { return kOkTopkPhases; }

  Result<std::size_t> encode(int phase, std::uint64_t step) override {
    if (phase == 0) GW_TRY(choose(step));
    if (phase == 2) return reduce_.pack();
    if (phase >= 3 && phase <= 5) count_magnitudes();
    if (phase == 6) count_kept();
    if (phase == 8) return pack_result();
    return std::size_t{0};
  }

  Result<std::optional<Work>> issue(int phase) override {
    switch (phase) {
      case 0: return reduce_.issue_quantiles();
      case 1:
        return started(reduce_.issue_counts({.kind = OpKind::kAllReduce,
                                             .in = const_view_of<std::int64_t>(most_),
                                             .out = view_of(std::span(most_)),
                                             .op = ReduceOp::kMax}));
      case 2: return started(reduce_.issue_pairs());
      case 6:
        return started(communicator_.all_gather(const_view_of<std::int32_t>(own_kept_),
                                                view_of(std::span(all_kept_))));
      case 7:
        if (!moves_) return std::optional<Work>();
        return started(communicator_.all_to_all_v(pairs_, send_bytes_, moved_, receive_bytes_));
      case 8: return started(communicator_.all_gather_v(send_, receive_, receive_bytes_));
      default:
        if (bins_.empty()) return std::optional<Work>();
        return started(communicator_.all_reduce(view_of(std::span(bins_)), ReduceOp::kSum));
    }
  }

  Status absorb(int phase, std::uint64_t) override {
    switch (phase) {
      case 0: reduce_.place(); return {};
      case 1: GW_TRY(judge_tensors()); return reduce_.take_counts();
      case 2: return reduce_.add();
      case 6: return take_kept();
      case 7: return {};
      case 8:
        GW_TRY(take_result());
        GW_TRY(finish());
        return context_.await_lane();
      default: advance(); return {};
    }
  }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> all;
    for (OkTopkTensor<T>& tensor : tensors_) {
      const Parameter& parameter = *tensor.parameter;
      for (NamedTensor& entry : tensor.coder->state()) {
        const bool feedback = is_feedback_state(parameter.feedback, entry.name);
        all.push_back({parameter.name + (feedback ? "." : ".coder.") + entry.name, entry.tensor});
      }
    }
    return all;
  }

 private:
  static Result<std::optional<Work>> started(Result<Work> work) {
    if (!work.has_value()) return work.error();
    return std::optional<Work>(std::move(work).value());
  }

  Status choose(std::uint64_t step) {
    GW_TRY(all_on_workers(workers_, tensors_.size(), [&](std::size_t t) {
      const OkTopkTensor<T>& tensor = tensors_[t];
      return tensor.named(tensor.coder->begin(tensor.parameter->grad, step, context_.stream()));
    }));
    std::vector<Pair<T>>& chosen = reduce_.chosen();
    chosen.clear();
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const OkTopkTensor<T>& tensor = tensors_[t];
      const std::span<const std::uint32_t> index = tensor.pairs->index();
      for (std::size_t k = 0; k < index.size(); ++k) {
        chosen.push_back(
            {static_cast<std::uint32_t>(tensor.begin + index[k]), tensor.pairs->values()[k]});
      }
      most_[t] = static_cast<std::int64_t>(tensor.pairs->index().size());
    }
    reduce_.choose(step);
    return {};
  }

  Status judge_tensors() {
    slots_ = 0;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      OkTopkTensor<T>& tensor = tensors_[t];
      if (most_[t] < 0 || most_[t] > tensor.elems()) {
        const std::string what = "a rank chose " + std::to_string(most_[t]) + " elements of ";
        return tensor.named({Code::kCorruptPayload, what + std::to_string(tensor.elems())});
      }
      tensor.full = most_[t] * kPairBytes<T> >= tensor.elems() * std::int64_t{sizeof(T)};
      tensor.slot = tensor.full ? 0 : slots_++;
      tensor.selection = SharedSelection(most_[t]);
    }
    return {};
  }

  // visit(tensor, elements) for every tensor with elements in rank r's region.
  template <typename Visit>
  void each_tensor_of(std::size_t r, Visit visit) {
    const Range region = reduce_.region(r);
    for (OkTopkTensor<T>& tensor : tensors_) {
      const Range part{std::max(region.begin, tensor.begin), std::min(region.end, tensor.end)};
      if (part.size() > 0) visit(tensor, part);
    }
  }
  // visit(tensor, pair, key) for this rank's sums of tensors that are not full, in ascending order.
  template <typename Visit>
  void each_sum(Visit visit) {
    std::size_t at = 0;  // the tensor that pairs have come to
    for (const Pair<T>& pair : reduce_.sums()) {
      while (pair.index >= tensors_[at].end) ++at;
      if (tensors_[at].full) continue;
      visit(tensors_[at], pair, SharedSelection::key(static_cast<double>(pair.value)));
    }
  }

  std::span<std::int32_t> bins_of(const OkTopkTensor<T>& tensor) {
    return std::span(bins_).subspan(tensor.slot * SharedSelection::kBins, SharedSelection::kBins);
  }
  void count_magnitudes() {
    bins_.assign(slots_ * SharedSelection::kBins, 0);
    each_sum([this](const OkTopkTensor<T>& tensor, const Pair<T>&, std::uint32_t key) {
      tensor.selection.count(key, bins_of(tensor));
    });
  }
  void advance() {
    for (OkTopkTensor<T>& tensor : tensors_) {
      if (!tensor.full) tensor.selection.advance(bins_of(tensor));
    }
  }

  // Of every rank: how many sums are kept for sure, then by tensor how many may be.
  void count_kept() {
    own_kept_.assign(1 + slots_, 0);
    all_kept_.assign(own_kept_.size() * size_, 0);
    each_sum([this](const OkTopkTensor<T>& tensor, const Pair<T>&, std::uint32_t key) {
      if (tensor.selection.above(key)) ++own_kept_[0];
      if (tensor.selection.at_edge(key)) ++own_kept_[1 + tensor.slot];
    });
  }

  // Room at the edge goes to the lowest indices, and so to the lowest ranks.
  Status take_kept() {
    kept_of_.assign(size_, 0);
    const std::size_t row = own_kept_.size();
    for (std::size_t r = 0; r < size_; ++r) kept_of_[r] = all_kept_[r * row];
    for (OkTopkTensor<T>& tensor : tensors_) {
      if (tensor.full) continue;
      std::int64_t room = tensor.selection.room();
      for (std::size_t r = 0; r < size_; ++r) {
        const std::int64_t wish = std::max(all_kept_[r * row + 1 + tensor.slot], 0);
        const std::int64_t part = std::min(room, wish);
        if (r == rank_) tensor.room = part;
        kept_of_[r] += part;
        room -= part;
      }
    }
    pairs_.clear();
    each_sum([this](OkTopkTensor<T>& tensor, const Pair<T>& sum, std::uint32_t key) {
      const bool edge = tensor.selection.at_edge(key) && tensor.room-- > 0;
      if (!edge && !tensor.selection.above(key)) return;
      put_pair(pairs_, sum);
    });
    return balance_pairs();
  }

  // Pairs of all owners, in their order, are cut anew where one holds too many.
  Status balance_pairs() {
    for (std::size_t r = 0; r < size_; ++r) {
      const std::int64_t elems = reduce_.region(r).size();
      if (kept_of_[r] >= 0 && kept_of_[r] <= elems) continue;
      return {Code::kCorruptPayload,
              format("rank %zu keeps %lld of %lld sums", r, static_cast<long long>(kept_of_[r]),
                     static_cast<long long>(elems))};
    }
    Balance cut = balance(kept_of_, static_cast<int>(rank_));
    moves_ = cut.moves;
    kept_of_ = std::move(cut.held);
    send_bytes_ = std::move(cut.sends);
    receive_bytes_ = std::move(cut.receives);
    for (std::size_t r = 0; r < size_; ++r) {
      send_bytes_[r] *= kPairBytes<T>;
      receive_bytes_[r] *= kPairBytes<T>;
    }
    if (moves_) moved_.resize(static_cast<std::size_t>(kept_of_[rank_] * kPairBytes<T>));
    return {};
  }

  static std::size_t bytes_of(const Range& part) {
    return static_cast<std::size_t>(part.size()) * sizeof(T);
  }

  // Full tensors' sums of the region, then pairs.
  std::size_t pack_result() {
    send_.clear();
    each_tensor_of(rank_, [this](const OkTopkTensor<T>& tensor, const Range& part) {
      if (!tensor.full) return;
      const std::size_t begin = send_.size();
      send_.resize(begin + bytes_of(part));
      for (const Pair<T>& sum : reduce_.sums_of(part)) {
        const auto at = static_cast<std::size_t>(sum.index - part.begin);
        std::memcpy(send_.data() + begin + at * sizeof(T), &sum.value, sizeof(T));
      }
    });
    const std::vector<std::byte>& pairs = moves_ ? moved_ : pairs_;
    send_.insert(send_.end(), pairs.begin(), pairs.end());
    std::size_t total = 0;
    for (std::size_t r = 0; r < size_; ++r) {
      auto bytes = static_cast<std::size_t>(kept_of_[r] * kPairBytes<T>);
      each_tensor_of(r, [&bytes](const OkTopkTensor<T>& tensor, const Range& part) {
        if (tensor.full) bytes += bytes_of(part);
      });
      receive_bytes_[r] = static_cast<std::int64_t>(bytes);
      total += bytes;
    }
    receive_.resize(total);
    return send_.size();
  }

  Status take_result() {
    for (OkTopkTensor<T>& tensor : tensors_) {
      tensor.kept.clear();
      tensor.sums.assign(tensor.full ? static_cast<std::size_t>(tensor.elems()) : 0, T{0});
    }
    ConstByteSpan rest = receive_;
    std::size_t at = 0;      // the tensor that pairs have come to
    std::int64_t least = 0;  // the next one's element may be so low
    for (std::size_t r = 0; r < size_; ++r) {
      each_tensor_of(r, [&rest](OkTopkTensor<T>& tensor, const Range& part) {
        if (!tensor.full) return;
        const std::size_t bytes = bytes_of(part);
        std::memcpy(tensor.sums.data() + (part.begin - tensor.begin), rest.data(), bytes);
        rest = rest.subspan(bytes);
      });
      for (std::int64_t k = 0; k < kept_of_[r]; ++k) {
        const Pair<T> pair = pair_at<T>(rest, 0);
        rest = rest.subspan(kPairBytes<T>);
        const std::int64_t e = pair.index;
        while (e >= least && e < elems_ && e >= tensors_[at].end) ++at;
        if (e < least || e >= elems_ || tensors_[at].full) {
          return {Code::kCorruptPayload,
                  format("rank %zu sent the sum of element %lld (expected at least %lld, below "
                         "%lld, of a tensor that is not full)",
                         r, static_cast<long long>(e), static_cast<long long>(least),
                         static_cast<long long>(elems_))};
        }
        tensors_[at].kept.push_back(static_cast<std::uint32_t>(e - tensors_[at].begin));
        tensors_[at].sums.push_back(pair.value);
        least = e + 1;
      }
    }
    return {};
  }

  Status finish() {
    return all_on_workers(workers_, tensors_.size(), [&](std::size_t t) {
      const OkTopkTensor<T>& tensor = tensors_[t];
      if (tensor.full) {
        tensor.pairs->keep_all(tensor.sums);
      } else {
        tensor.pairs->keep(tensor.kept, tensor.sums);
      }
      return tensor.named(tensor.coder->finish(tensor.parameter->grad, {}, context_.stream()));
    });
  }

  const ExchangeContext& context_;
  Communicator& communicator_;
  Workers* workers_;
  std::size_t rank_;
  std::size_t size_;
  std::vector<OkTopkTensor<T>> tensors_;
  std::int64_t elems_;  // of the bucket
  RegionReduce<T> reduce_;
  // Of this step.
  std::vector<std::int64_t> most_;  // k, by tensor
  std::size_t slots_ = 0;           // tensors that are not full
  std::vector<std::int32_t> bins_, own_kept_, all_kept_;
  std::vector<std::int64_t> kept_of_;     // pairs of the result, by rank
  bool moves_ = false;                    // phase 7 has something to do
  std::vector<std::byte> pairs_, moved_;  // of the result
  std::vector<std::byte> send_, receive_;
  std::vector<std::int64_t> send_bytes_, receive_bytes_;
};

template <typename T>
Result<std::unique_ptr<BucketExchange>> make_oktopk(const ExchangeContext& context,
                                                    const Members& members) {
  std::vector<OkTopkTensor<T>> tensors;
  for (const Parameter* member : members) {
    auto tensor = open_oktopk_tensor<T>(context, *member, tensors.empty() ? 0 : tensors.back().end);
    if (!tensor.has_value()) return tensor.error().with_context("parameter '" + member->name + "'");
    tensors.push_back(std::move(tensor).value());
  }
  return std::unique_ptr<BucketExchange>(
      std::make_unique<OkTopkExchange<T>>(context, std::move(tensors)));
}

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_oktopk_exchange(const ExchangeContext& context,
                                                             const Members& members) {
  return members.front()->grad.dtype() == DType::kF64 ? make_oktopk<double>(context, members)
                                                      : make_oktopk<float>(context, members);
}

}  // namespace gradwire
