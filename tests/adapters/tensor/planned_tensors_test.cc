// The planner's step of ranks that share tensors is that of the layers themselves, to the
// nanosecond: real passes over real exchanges in virtual time, in which a product takes a
// nanosecond for each multiplication.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/tensor/communicator_peers.h"
#include "planner/mesh/mesh_search.h"
#include "tests/adapters/modes/virtual_ranks.h"
#include "trainer/batch_pass.h"
#include "trainer/data/catalog.h"
#include "trainer/layers/parallel/input_sum.h"
#include "trainer/layers/parallel/sample_input.h"
#include "trainer/models.h"

namespace gradwire::testing::planned_tensors_test {
namespace {

constexpr int kRanks = 2;  // with more, ports are given to messages as they meet in real time

ExactTime nanoseconds(std::int64_t count) { return exact(1e-9 * static_cast<double>(count)); }

// A rank's peers whose exchanges end in real time before they are awaited, so that virtual time
// knows when they end; beside each of those on the way back the rank computes for so long.
class TimedPeers final : public LayerPeers {
 public:
  TimedPeers(Communicator& group, VirtualClock& clock, std::deque<std::int64_t> beside)
      : inner_(group), clock_(clock), beside_(std::move(beside)) {}

  int ranks() const override { return inner_.ranks(); }
  int rank() const override { return inner_.rank(); }
  Status status() const override { return inner_.status(); }
  void go_back() { back_ = true; }
  void await() override {
    if (!back_ || beside_.empty()) return;
    clock_.reach(rank(), begin_ + nanoseconds(beside_.front()));
    beside_.pop_front();
  }

 private:
  void exchanged(const std::function<void()>& start) {
    begin_ = clock_.now(rank());
    start();
    inner_.await();
  }
  static TensorView view(ByteSpan bytes, DType type) {
    const auto elems = static_cast<std::int64_t>(bytes.size() / size_of(type));
    return {bytes.data(), Shape::vector(elems), type};
  }
  static std::span<float> floats(ByteSpan bytes) {
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
  }
  void sum(ByteSpan values, DType type) override {
    exchanged([&] { inner_.start_sum(view(values, type)); });
  }
  void max(ByteSpan values, DType) override {
    exchanged([&] { inner_.start_max(floats(values)); });
  }
  void gather(ConstByteSpan mine, ByteSpan all, DType type) override {
    const auto elems = static_cast<std::int64_t>(mine.size() / size_of(type));
    const ConstTensorView sent(mine.data(), Shape::vector(elems), type);
    exchanged([&] { inner_.start_gather(sent, view(all, type)); });
  }
  void scatter_sum(ConstByteSpan all, ByteSpan mine, DType) override {
    const std::span<const float> parts{reinterpret_cast<const float*>(all.data()),
                                       all.size() / sizeof(float)};
    exchanged([&] { inner_.start_scatter_sum(parts, floats(mine)); });
  }
  void exchange(std::span<const Bytes>, DType) override { FAIL() << "no layer here has tiles"; }

  CommunicatorPeers inner_;
  VirtualClock& clock_;
  std::deque<std::int64_t> beside_;
  ExactTime begin_;
  bool back_ = false;
};

// Products by weights that are computed beside a layer's exchange on the way back, a sample's; 0
// where it has none.
std::int64_t beside_of(const Layer<float>& layer) {
  if (dynamic_cast<const InputSum<float>*>(&layer) != nullptr ||
      dynamic_cast<const SampleInput<float>*>(&layer) != nullptr) {
    return layer.cost().weight_macs;
  }
  std::int64_t all = 0;
  for (const LayerPart<float>& part : layer.parts()) all += beside_of(*part.layer);
  return all;
}

struct Case {
  std::string name;
  ModelOptions options;
  std::string data;
  std::int64_t context = 0;
  std::int64_t rows = 0;  // of a micro-batch: exchanges take whole nanoseconds
  TensorShare::Layout layout = TensorShare::Layout::kFeatures;
};

std::vector<Case> cases() {
  ModelOptions mlp{"mlp"};
  mlp.hidden = {64, 32, 48};
  ModelOptions odd = mlp;  // the last layer is divided by classes, which the loss adds up
  odd.hidden = {64, 32};
  ModelOptions gpt{"gpt"};
  gpt.width = 24;
  gpt.layers = 2;
  gpt.heads = 4;
  return {{"mlp", mlp, "digits", 0, 50},
          {"mlp of three layers", odd, "digits", 0, 50},
          {"gpt", gpt, "grammar", 12, 25},
          {"cnn", ModelOptions{"cnn"}, "digits", 0, 50, TensorShare::Layout::kSamples}};
}

Model<float> model_of(const Case& one, const DataSet& data, TensorShare share) {
  ModelOptions options = one.options;
  share.layout = one.layout;
  options.share = share;
  return std::move(make_model<float>(options, data.shape(), data.classes())).value();
}

// A micro-batch, on the rank that ends last. A layer's products are charged when it tells of them;
// those beside an exchange are charged there.
ExactTime passed(const Case& one, const DataSet& data) {
  return in_virtual_time(kRanks, [&](Communicator& group, VirtualClock& clock) -> Status {
    const int rank = group.rank();
    const Model<float> part = model_of(one, data, {.ranks = kRanks, .rank = rank});
    std::map<std::string, std::array<std::int64_t, 3>> costs;  // forward, input, weights
    std::deque<std::int64_t> beside;
    std::int64_t rows = one.rows;
    for (std::size_t i = 0; i < part.layers(); ++i) {
      const Layer<float>& layer = part.layer(i);
      if (layer.sample_rows() == SampleRows::kOwn) rows = one.rows / kRanks;
      if (layer.sample_rows() == SampleRows::kAll) rows = one.rows;
      const LayerCost cost = layer.cost();
      const std::int64_t hidden = part.derives_input(i) ? beside_of(layer) : 0;
      if (hidden > 0) beside.push_front(rows * hidden);
      costs[part.layer_name(i)] = {rows * cost.forward_macs,
                                   part.derives_input(i) ? rows * cost.input_macs : 0,
                                   rows * (cost.weight_macs - hidden)};
    }
    TimedPeers peers(group, clock, std::move(beside));
    GW_ASSIGN(BatchPass pass, BatchPass::create(part, data, one.rows, {.peers = &peers}));
    const OnTrainerSpan told = [&](const TrainerSpan& span) {
      using Kind = TrainerSpan::Kind;
      if (span.kind == Kind::kLoss) peers.go_back();
      const auto known = costs.find(std::string(span.layer));
      if (known == costs.end()) return;
      const auto& [forward, input, weights] = known->second;
      if (span.kind == Kind::kForward) clock.advance(rank, nanoseconds(forward));
      const bool both = span.kind == Kind::kBackward;
      if (both || span.kind == Kind::kBackwardInput) clock.advance(rank, nanoseconds(input));
      if (both || span.kind == Kind::kBackwardParams) clock.advance(rank, nanoseconds(weights));
    };
    pass.tell(&told);
    std::vector<float> params(static_cast<std::size_t>(parameter_elems(part.parameters())));
    init_parameters<float>(part.parameters(), 1, params);
    std::vector<float> grads(static_cast<std::size_t>(part.gradients().elems()));
    std::vector<std::uint32_t> samples(static_cast<std::size_t>(one.rows));
    std::iota(samples.begin(), samples.end(), 0U);
    GW_TRY(pass.run(params, {.samples = samples}, grads, [](int) { return Status(); }).error());
    return peers.status();
  });
}

std::int64_t planned(const Case& one, const DataSet& data) {
  Cluster cluster{.name = "peers"};
  cluster.types = {{.name = "rank", .memory_bytes = 1 << 30, .macs_per_second = 1e9}};
  // A little more than the links have, so that rounding up does not add a nanosecond.
  cluster.links = {{.name = "net",
                    .latency = std::llround(kModelLinks.alpha * 1e9),
                    .bytes_per_second = (1 + 1e-12) / kModelLinks.beta}};
  for (int rank = 0; rank < kRanks; ++rank) {
    cluster.nodes.push_back({.name = "node" + std::to_string(rank), .uplink = 0});
  }
  MeshModel model([&](const TensorShare& share, bool) -> Result<Model<float>> {
    return model_of(one, data, share);
  });
  const ClusterRates rates;
  const MeshProblem problem{
      .cluster = &cluster, .model = &model, .rates = &rates, .batch = one.rows};
  const MeshChoice choice{.tp = kRanks, .micro_batch = one.rows};
  const MeshLinks links = mesh_links(cluster, choice);
  MeshCosts costs =
      mesh_costs(problem, choice, links, MeshCompression::make("none").value()).value();
  // Behind the pass: gradients that each has of its own samples.
  for (MeshLayerCost& layer : costs.replicas[0][0][0].layers) layer.sum_gradients = 0;
  return simulate_mesh(choice, links, costs).value().ticks;
}

TEST(PlannedTensors, AStepIsThatOfTheLayersInVirtualTime) {
  for (const Case& one : cases()) {
    DataOptions how;
    if (one.context > 0) how.text.context = one.context;
    const auto data = load_data_set(one.data, {}, how);
    ASSERT_TRUE(data.has_value()) << data.error().message();
    const double seconds = passed(one, data.value()).seconds();
    EXPECT_EQ(planned(one, data.value()), std::llround(seconds * 1e9)) << one.name;
  }
}

}  // namespace
}  // namespace gradwire::testing::planned_tensors_test
