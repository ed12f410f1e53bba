#include "trainer/data/order.h"

#include <array>
#include <utility>

#include "base/philox.h"

namespace gradwire {
namespace {

// Philox words in sequence; a block of four is computed once.
class OrderWords {
 public:
  explicit OrderWords(const RandomStream& stream) : stream_(stream) {}
  std::uint32_t next() {
    if (used_ % 4 == 0) block_ = stream_.block(used_ / 4);
    return block_[used_++ % 4];
  }
  // Evenly from 0..count-1.
  std::uint32_t below(std::uint32_t count) {
    std::uint64_t product = std::uint64_t{next()} * count;
    const std::uint32_t refused = -count % count;  // (2^32 - count) mod count
    while (static_cast<std::uint32_t>(product) < refused) product = std::uint64_t{next()} * count;
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  RandomStream stream_;
  std::uint64_t used_ = 0;
  std::array<std::uint32_t, 4> block_{};
};

}  // namespace

DataOrder::DataOrder(std::int64_t samples, std::uint64_t seed, Shuffle shuffle,
                     std::int64_t population, std::int64_t stride)
    : seed_(seed),
      shuffle_(shuffle),
      population_(static_cast<std::uint32_t>(population)),
      stride_(static_cast<std::uint32_t>(stride)),
      order_(static_cast<std::size_t>(samples)) {
  in_file_order();
}

void DataOrder::in_file_order() {
  for (std::size_t i = 0; i < order_.size(); ++i) {
    order_[i] = static_cast<std::uint32_t>(i) * stride_;
  }
}

std::span<const std::uint32_t> DataOrder::epoch(std::int64_t epoch) {
  if (shuffle_ == Shuffle::kNone || epoch == current_) return order_;
  current_ = epoch;
  const auto use = static_cast<std::uint64_t>(shuffle_ == Shuffle::kUniform ? 1 : 0);
  OrderWords words(RandomStream(seed_, RandomUse::kDataOrder, use, kSharedRank, 0,
                                static_cast<std::uint64_t>(epoch)));
  if (shuffle_ == Shuffle::kUniform) {
    for (std::uint32_t& sample : order_) sample = words.below(population_);
    return order_;
  }
  in_file_order();
  for (std::size_t i = order_.size(); i-- > 1;) {
    std::swap(order_[i], order_[words.below(static_cast<std::uint32_t>(i + 1))]);
  }
  return order_;
}

std::span<const std::uint32_t> micro_batch(std::span<const std::uint32_t> order, std::int64_t batch,
                                           std::int64_t step_of_epoch, Range own) {
  return order.subspan(static_cast<std::size_t>(batch * step_of_epoch + own.begin),
                       static_cast<std::size_t>(own.size()));
}

}  // namespace gradwire
