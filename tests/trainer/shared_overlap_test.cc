// Which exchanges among ranks that share tensors cost time, under virtual time: real layers, whose
// products and sums take the ticks that a test gives them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/thread_ranks.h"
#include "tests/trainer/layer_run.h"
#include "tests/trainer/pipeline/virtual_ranks.h"
#include "trainer/layers/chain.h"
#include "trainer/layers/gelu.h"
#include "trainer/layers/layer_norm.h"
#include "trainer/layers/parallel/column_linear.h"
#include "trainer/layers/parallel/input_sum.h"
#include "trainer/layers/parallel/row_linear.h"
#include "trainer/layers/residual.h"

namespace gradwire::shared_overlap_test {
namespace {

// A layer's products on one rank.
struct Products {
  std::int64_t forward = 0;
  std::int64_t input = 0;
  std::int64_t weights = 0;
};

// What a block of two shared layers costs: the first has outputs, the second inputs of a rank.
struct BlockTicks {
  std::vector<Products> first;  // by rank
  std::vector<Products> second;
  std::int64_t sum = 0;  // of activations over all ranks, from the last one's start
};

// Computes as `inside` does, in the ticks given.
template <typename T>
class Ticking final : public Layer<T> {
 public:
  Ticking(std::unique_ptr<Layer<T>> inside, const Products& ticks, VirtualRanks& time)
      : inside_(std::move(inside)), ticks_(ticks), time_(&time) {}

  SampleShape output() const override { return inside_->output(); }
  ParameterTable parameters() const override { return inside_->parameters(); }
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace where) const override {
    return inside_->scratch_elems(rows, where);
  }
  std::int64_t saved_elems(std::int64_t rows) const override { return inside_->saved_elems(rows); }
  std::int64_t stash_elems(std::int64_t rows) const override { return inside_->stash_elems(rows); }
  void forward(const LayerPass<T>& pass) const override {
    spend(ticks_.forward);
    inside_->forward(pass);
  }
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override {
    spend(ticks_.weights);
    inside_->backward_params(pass, dy, grads);
  }
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override {
    spend(ticks_.input);
    inside_->backward_input(pass, dy, dx);
  }

 private:
  void spend(std::int64_t ticks) const { EXPECT_TRUE(time_->spend(ticks).ok()); }

  std::unique_ptr<Layer<T>> inside_;
  Products ticks_;
  VirtualRanks* time_;
};

// Exchanges that take ticks and bring nothing.
class VirtualPeers final : public LayerPeers {
 public:
  VirtualPeers(int rank, int ranks, std::int64_t ticks, VirtualRanks& time)
      : rank_(rank), ranks_(ranks), ticks_(ticks), time_(&time) {}

  int ranks() const override { return ranks_; }
  int rank() const override { return rank_; }
  Status status() const override { return status_; }
  void await() override {
    for (; ended_ < begun_; ++ended_) {
      if (const Status met = time_->wait_met({0, ended_}); !met.ok()) status_ = met;
    }
  }
  int exchanges() const { return begun_; }

 private:
  void begin() { time_->join({0, begun_++}, ranks_, ticks_); }
  void sum(ByteSpan, DType) override { begin(); }
  void max(ByteSpan, DType) override { begin(); }
  void gather(ConstByteSpan, ByteSpan, DType) override { begin(); }
  void scatter_sum(ConstByteSpan, ByteSpan, DType) override { begin(); }
  void exchange(std::span<const Bytes>, DType) override { begin(); }

  int rank_;
  int ranks_;
  std::int64_t ticks_;
  VirtualRanks* time_;
  Status status_;
  int begun_ = 0;
  int ended_ = 0;
};

enum class Way : std::uint8_t { kWhole, kHalves };  // backward: in one, or the input's half first

// Ticks when each rank has ended forward, and backward.
struct RankEnds {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  friend bool operator==(const RankEnds&, const RankEnds&) = default;
};

// What the model says: a sum begins when the last rank starts it; behind forward's products it is
// awaited at once, and on the way back behind the product of the weights of the layer that reads
// the summed input. In halves it is awaited before that.
std::vector<RankEnds> predicted(const BlockTicks& ticks, Way way) {
  const std::size_t ranks = ticks.first.size();
  std::int64_t forward = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    forward = std::max(forward, ticks.first[r].forward + ticks.second[r].forward);
  }
  forward += ticks.sum;
  std::vector<std::int64_t> started(ranks, forward);
  for (std::size_t r = 0; r < ranks; ++r) {
    started[r] += ticks.second[r].input + ticks.first[r].input;
    if (way == Way::kWhole) started[r] += ticks.second[r].weights;
  }
  const std::int64_t summed = *std::ranges::max_element(started) + ticks.sum;
  std::vector<RankEnds> ends;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::int64_t after = way == Way::kWhole
                                   ? std::max(summed, started[r] + ticks.first[r].weights)
                                   : summed + ticks.second[r].weights + ticks.first[r].weights;
    ends.push_back({forward, after});
  }
  return ends;
}

// What stands around two shared layers, and takes no ticks: nothing; as in a transformer's block, a
// norm before them and their input added behind them; two layers of the same ticks added behind
// them, as residual blocks of images have a convolution there.
enum class Around : std::uint8_t { kNothing, kInput, kLayers };

std::unique_ptr<Layer<float>> block_of(const BlockTicks& ticks, std::size_t rank, Around around,
                                       VirtualRanks& time) {
  const std::int64_t width = 2;
  const std::int64_t ranks = static_cast<std::int64_t>(ticks.first.size());
  const std::int64_t inner = 2 * ranks;
  const auto place = static_cast<std::int64_t>(rank);
  const Range here{2 * place, 2 * place + 2};
  const SampleShape shape{width, 1, 1};
  auto chain = std::make_unique<Chain<float>>(shape);
  if (around == Around::kInput) chain->add("norm", std::make_unique<LayerNorm<float>>(shape));
  chain->add("up", std::make_unique<InputSum<float>>(std::make_unique<Ticking<float>>(
                       std::make_unique<ColumnLinear<float>>(width, ColumnShare{inner, here}),
                       ticks.first[rank], time)));
  chain->add("gelu", std::make_unique<Gelu<float>>(SampleShape{here.size(), 1, 1}));
  chain->add("down", std::make_unique<Ticking<float>>(
                         std::make_unique<RowLinear<float>>(RowShare{inner, here}, width),
                         ticks.second[rank], time));
  if (around == Around::kNothing) return chain;
  auto shortcut =
      around == Around::kInput ? nullptr : block_of(ticks, rank, Around::kNothing, time);
  return std::make_unique<Residual<float>>(shape, std::move(chain), std::move(shortcut));
}

std::vector<RankEnds> executed(const BlockTicks& ticks, Way way, Around around) {
  const auto ranks = static_cast<int>(ticks.first.size());
  const PipelineCosts none;
  VirtualRanks time(ranks, none);
  std::vector<RankEnds> ends(ticks.first.size());
  const auto statuses = on_threads<Status>(ranks, [&](int rank) {
    const auto place = static_cast<std::size_t>(rank);
    const auto block = block_of(ticks, place, around, time);
    VirtualPeers peers(rank, ranks, ticks.sum, time);
    const std::int64_t rows = 1;
    LayerRun<float> run(*block, rows, draws<float>(rows * 2, 1),
                        draws<float>(parameter_elems(block->parameters()), 2));
    run.peers = &peers;
    const std::vector<float> dy = draws<float>(rows * 2, 3);
    run.forward();
    ends[place].forward = time.now();
    if (way == Way::kWhole) {
      block->backward(run.pass(), dy, run.dx, run.grads);
    } else {
      block->backward_input(run.pass(), dy, run.dx);
      block->finish_input(run.pass(), dy, run.dx);
      block->backward_params(run.pass(), dy, run.grads);
    }
    ends[place].backward = time.now();
    time.leave();
    EXPECT_EQ(peers.exchanges(), around == Around::kLayers ? 4 : 2);
    return peers.status();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return ends;
}

BlockTicks random_ticks(int ranks, std::mt19937& random) {
  const auto draw = [&random](unsigned most) {
    return static_cast<std::int64_t>(random() % (most + 1));
  };
  BlockTicks ticks;
  ticks.sum = draw(12);
  for (int r = 0; r < ranks; ++r) {
    ticks.first.push_back({draw(9), draw(9), draw(9)});
    ticks.second.push_back({draw(9), draw(9), draw(9)});
  }
  return ticks;
}

std::string text_of(const std::vector<RankEnds>& ends) {
  std::string text;
  for (const RankEnds& one : ends) {
    text += " " + std::to_string(one.forward) + "," + std::to_string(one.backward);
  }
  return text;
}

TEST(SharedOverlap, RanksEndWhenTheModelSaysToTheTick) {
  std::mt19937 random(11);
  for (int draw = 0; draw < 60; ++draw) {
    const int ranks = 1 + draw % 4;
    const BlockTicks ticks = random_ticks(ranks, random);
    for (const Way way : {Way::kWhole, Way::kHalves}) {
      for (const Around around : {Around::kNothing, Around::kInput}) {
        const auto ran = executed(ticks, way, around);
        EXPECT_EQ(ran, predicted(ticks, way))
            << "draw " << draw << (way == Way::kWhole ? " whole:" : " halves:") << text_of(ran)
            << " for" << text_of(predicted(ticks, way));
      }
    }
  }
}

// Of a sum of s ticks beside a product of w, max(0, s - w) are left; of two sums, each beside its
// own product, twice as many.
TEST(SharedOverlap, OfASumBesideAProductTheLongerPartIsLeft) {
  const auto backward_ticks = [](std::int64_t weights, std::int64_t sum, Around around) {
    BlockTicks ticks;
    ticks.sum = sum;
    ticks.first.assign(2, {5, 7, weights});
    ticks.second.assign(2, {5, 7, 6});
    const RankEnds ends = executed(ticks, Way::kWhole, around).front();
    return ends.backward - ends.forward;
  };
  for (const std::int64_t weights : {0, 1, 4, 5, 6, 20}) {
    const std::int64_t computed = 7 + 6 + 7 + weights;
    const std::int64_t branch = computed + std::max<std::int64_t>(0, 5 - weights);
    EXPECT_EQ(backward_ticks(weights, 5, Around::kNothing), branch) << weights;
    EXPECT_EQ(backward_ticks(weights, 5, Around::kInput), branch) << weights;
    EXPECT_EQ(backward_ticks(weights, 5, Around::kLayers), 2 * branch) << weights;
  }
}

}  // namespace
}  // namespace gradwire::shared_overlap_test
