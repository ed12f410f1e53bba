#include "aggregate/region_reduce.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/elements.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::uint64_t kRefreshSteps = 64;
// A region with fewer pairs than an element in so many has them merged: memory of its size would
// take longer to clear and to look through.
constexpr std::int64_t kSparse = 16;

}  // namespace

Balance balance(std::span<const std::int64_t> held, int rank) {
  const auto ranks = static_cast<int>(held.size());
  Balance result{.held = {held.begin(), held.end()},
                 .sends = std::vector<std::int64_t>(held.size()),
                 .receives = std::vector<std::int64_t>(held.size())};
  const std::int64_t total = std::accumulate(held.begin(), held.end(), std::int64_t{0});
  const std::int64_t most = *std::max_element(held.begin(), held.end());
  result.moves = most > 2 * piece(total, ranks, 0).size();
  if (!result.moves) return result;
  std::int64_t end = 0;
  for (int r = 0; r < ranks; ++r) {
    const Range before{end, end + held[static_cast<std::size_t>(r)]};
    end = before.end;
    result.held[static_cast<std::size_t>(r)] = piece(total, ranks, r).size();
    for (int q = 0; q < ranks; ++q) {
      const Range after = piece(total, ranks, q);
      const std::int64_t both = std::max<std::int64_t>(
          0, std::min(before.end, after.end) - std::max(before.begin, after.begin));
      if (r == rank) result.sends[static_cast<std::size_t>(q)] = both;
      if (q == rank) result.receives[static_cast<std::size_t>(r)] = both;
    }
  }
  return result;
}

template <typename T>
RegionReduce<T>::RegionReduce(Communicator& communicator, std::int64_t elems)
    : communicator_(communicator),
      rank_(static_cast<std::size_t>(communicator.rank())),
      size_(static_cast<std::size_t>(communicator.size())),
      elems_(elems),
      to_(size_),
      from_(size_) {}

template <typename T>
void RegionReduce<T>::choose(std::uint64_t step) {
  refresh_ = regions_.empty() || step % kRefreshSteps == 0;
  quantiles_.assign(size_, 0);  // the first region begins at 0
  for (std::size_t r = 1; r < size_; ++r) {
    quantiles_[r] = chosen_.empty() ? piece(elems_, communicator_.size(), static_cast<int>(r)).begin
                                    : chosen_[chosen_.size() * r / size_].index;
  }
}

template <typename T>
Result<std::optional<Work>> RegionReduce<T>::issue_quantiles() {
  if (!refresh_) return std::optional<Work>();
  GW_ASSIGN(Work work, communicator_.all_reduce(view_of(std::span(quantiles_)), ReduceOp::kSum));
  return std::optional<Work>(std::move(work));
}

template <typename T>
void RegionReduce<T>::place() {
  if (refresh_) {
    regions_.assign(size_ + 1, elems_);
    for (std::size_t r = 0; r < size_; ++r) {
      const std::int64_t bound = quantiles_[r] / static_cast<std::int64_t>(size_);
      regions_[r] = std::clamp<std::int64_t>(bound, r == 0 ? 0 : regions_[r - 1], elems_);
    }
    regions_[0] = 0;
  }
  first_.assign(size_ + 1, chosen_.size());
  for (std::size_t r = 0; r < size_; ++r) {
    const auto below = [](const Pair<T>& pair, std::int64_t at) { return pair.index < at; };
    const auto begin = std::lower_bound(chosen_.begin(), chosen_.end(), regions_[r], below);
    first_[r] = static_cast<std::size_t>(begin - chosen_.begin());
  }
  for (std::size_t r = 0; r < size_; ++r) {
    to_[r] = static_cast<std::int32_t>(first_[r + 1] - first_[r]);
  }
}

template <typename T>
Result<Work> RegionReduce<T>::issue_counts(const OpCall& also) {
  const OpCall calls[] = {{.kind = OpKind::kAllToAll,
                           .in = const_view_of<std::int32_t>(to_),
                           .out = view_of(std::span(from_))},
                          also};
  return communicator_.start_all(calls);
}

template <typename T>
Status RegionReduce<T>::take_counts() {
  send_bytes_.assign(size_, 0);
  receive_bytes_.assign(size_, 0);
  std::int64_t incoming = 0;
  for (std::size_t r = 0; r < size_; ++r) {
    if (from_[r] < 0 || from_[r] > own().size()) {
      return {Code::kCorruptPayload, format("rank %zu has %d pairs for a region of %lld elements",
                                            r, from_[r], static_cast<long long>(own().size()))};
    }
    if (r == rank_) continue;
    send_bytes_[r] = std::min(to_[r] * kPairBytes<T>, dense_bytes(r));
    receive_bytes_[r] = std::min(from_[r] * kPairBytes<T>, dense_bytes(rank_));
    incoming += receive_bytes_[r];
  }
  receive_.resize(static_cast<std::size_t>(incoming));
  return {};
}

template <typename T>
std::size_t RegionReduce<T>::pack() {
  send_.clear();
  for (std::size_t r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const auto pairs = std::span(chosen_).subspan(first_[r], first_[r + 1] - first_[r]);
    if (!as_it_is(r, to_[r])) {
      for (const Pair<T>& pair : pairs) put_pair(send_, pair);
      continue;
    }
    const std::size_t begin = send_.size();
    send_.resize(begin + static_cast<std::size_t>(dense_bytes(r)));
    for (const Pair<T>& pair : pairs) {
      const auto at = static_cast<std::size_t>(pair.index - regions_[r]);
      std::memcpy(send_.data() + begin + at * sizeof(T), &pair.value, sizeof(T));
    }
  }
  return send_.size();
}

template <typename T>
Result<Work> RegionReduce<T>::issue_pairs() {
  return communicator_.all_to_all_v(send_, send_bytes_, receive_, receive_bytes_);
}

// In rank order, so that sums do not depend on who owns them.
template <typename T>
Status RegionReduce<T>::add() {
  sums_.clear();
  std::int64_t pairs = 0;
  bool whole = false;
  for (std::size_t r = 0; r < size_; ++r) {
    pairs += from_[r];
    whole = whole || (r != rank_ && as_it_is(rank_, from_[r]));
  }
  return whole || pairs * kSparse > own().size() ? add_in_place() : merge_pairs();
}

template <typename T>
ConstByteSpan RegionReduce<T>::take_from(std::size_t r, ConstByteSpan& rest) const {
  const auto count = r == rank_ ? 0 : static_cast<std::size_t>(receive_bytes_[r]);
  const ConstByteSpan bytes = rest.first(count);
  rest = rest.subspan(count);
  return bytes;
}

template <typename T>
template <typename Visit>
Status RegionReduce<T>::each_pair_from(std::size_t r, ConstByteSpan bytes, Visit visit) const {
  const auto count = r == rank_ ? first_[r + 1] - first_[r] : static_cast<std::size_t>(from_[r]);
  std::int64_t least = own().begin;
  for (std::size_t k = 0; k < count; ++k) {
    const Pair<T> pair = r == rank_ ? chosen_[first_[r] + k] : pair_at<T>(bytes, k);
    const std::int64_t e = pair.index;
    if (e < least || e >= own().end) {
      return {Code::kCorruptPayload,
              format("rank %zu sent element %lld (expected %lld to below %lld)", r,
                     static_cast<long long>(e), static_cast<long long>(least),
                     static_cast<long long>(own().end))};
    }
    visit(pair);
    least = e + 1;
  }
  return {};
}

// Ranks' runs of pairs, two neighbours at a time: of equal elements the lower rank's is in front.
template <typename T>
Status RegionReduce<T>::merge_pairs() {
  runs_.clear();
  ends_.assign(1, 0);
  ConstByteSpan rest = receive_;
  for (std::size_t r = 0; r < size_; ++r) {
    GW_TRY(each_pair_from(r, take_from(r, rest),
                          [this](const Pair<T>& pair) { runs_.push_back(pair); }));
    ends_.push_back(runs_.size());
  }
  const auto before = [](const Pair<T>& a, const Pair<T>& b) { return a.index < b.index; };
  while (ends_.size() > 2) {
    merged_.resize(runs_.size());
    std::vector<std::size_t> ends{0};
    for (std::size_t i = 0; i + 1 < ends_.size(); i += 2) {
      const auto at = [&](std::size_t run) {
        const std::size_t end = ends_[std::min(run, ends_.size() - 1)];
        return runs_.begin() + static_cast<std::ptrdiff_t>(end);
      };
      std::merge(at(i), at(i + 1), at(i + 1), at(i + 2),
                 merged_.begin() + static_cast<std::ptrdiff_t>(ends_[i]), before);
      ends.push_back(ends_[std::min(i + 2, ends_.size() - 1)]);
    }
    std::swap(runs_, merged_);
    ends_ = std::move(ends);
  }
  for (const Pair<T>& pair : runs_) {
    if (sums_.empty() || sums_.back().index != pair.index) {
      sums_.push_back(pair);
    } else {
      sums_.back().value += pair.value;
    }
  }
  return {};
}

template <typename T>
Status RegionReduce<T>::add_in_place() {
  sum_.assign(static_cast<std::size_t>(own().size()), T{0});
  touched_.assign(sum_.size(), false);
  const auto add = [this](std::size_t at, T value) {
    sum_[at] += value;
    touched_[at] = true;
  };
  ConstByteSpan rest = receive_;
  for (std::size_t r = 0; r < size_; ++r) {
    const ConstByteSpan bytes = take_from(r, rest);
    if (r == rank_ || !as_it_is(rank_, from_[r])) {
      GW_TRY(each_pair_from(r, bytes, [&](const Pair<T>& pair) {
        add(static_cast<std::size_t>(pair.index - own().begin), pair.value);
      }));
      continue;
    }
    for (std::size_t i = 0; i < sum_.size(); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      if (value != T{0}) add(i, value);  // as pairs: only what is something counts as sent
    }
  }
  for (std::size_t i = 0; i < sum_.size(); ++i) {
    if (!touched_[i]) continue;
    sums_.push_back(
        {static_cast<std::uint32_t>(own().begin + static_cast<std::int64_t>(i)), sum_[i]});
  }
  return {};
}

template <typename T>
std::span<const Pair<T>> RegionReduce<T>::sums_of(const Range& part) const {
  const auto at = [this](std::int64_t e) {
    return std::lower_bound(
        sums_.begin(), sums_.end(), e,
        [](const Pair<T>& pair, std::int64_t least) { return pair.index < least; });
  };
  return {at(part.begin), at(part.end)};
}

template class RegionReduce<float>;
template class RegionReduce<double>;

}  // namespace gradwire
