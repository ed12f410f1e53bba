#include "aggregate/region_reduce.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/elements.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::uint64_t kRefreshSteps = 64;

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
  sum_.assign(static_cast<std::size_t>(own().size()), T{0});
  touched_.assign(sum_.size(), false);
  ConstByteSpan rest = receive_;
  for (std::size_t r = 0; r < size_; ++r) {
    if (r == rank_) {
      for (std::size_t k = first_[r]; k < first_[r + 1]; ++k) GW_TRY(add_pair(chosen_[k], r));
      continue;
    }
    const auto count = static_cast<std::size_t>(receive_bytes_[r]);
    GW_TRY(add_from(r, rest.first(count)));
    rest = rest.subspan(count);
  }
  return {};
}

template <typename T>
Status RegionReduce<T>::add_from(std::size_t r, ConstByteSpan bytes) {
  if (!as_it_is(rank_, from_[r])) {
    for (std::int32_t k = 0; k < from_[r]; ++k) {
      GW_TRY(add_pair(pair_at<T>(bytes, static_cast<std::size_t>(k)), r));
    }
    return {};
  }
  for (std::size_t i = 0; i < sum_.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    if (value == T{0}) continue;  // as pairs: only what is something counts as sent
    sum_[i] += value;
    touched_[i] = true;
  }
  return {};
}

template <typename T>
Status RegionReduce<T>::add_pair(const Pair<T>& pair, std::size_t r) {
  const std::int64_t e = pair.index;
  if (e < own().begin || e >= own().end) {
    return {Code::kCorruptPayload,
            format("rank %zu sent element %lld (%lld to below %lld wanted)", r,
                   static_cast<long long>(e), static_cast<long long>(own().begin),
                   static_cast<long long>(own().end))};
  }
  sum_[place_of(e)] += pair.value;
  touched_[place_of(e)] = true;
  return {};
}

template class RegionReduce<float>;
template class RegionReduce<double>;

}  // namespace gradwire
