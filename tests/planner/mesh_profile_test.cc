// Meshes on devices with a profile: times that were planted there are found in a step, to the
// nanosecond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "planner/mesh/mesh_search.h"
#include "planner/profile/measure.h"
#include "tests/planner/even_cluster.h"
#include "tests/planner/mesh_cases.h"

namespace gradwire::mesh_profile_test {
namespace {

const ClusterRates kRates;

constexpr double kSecond = 1e9;  // nanoseconds

// Of every layer of the model of a mesh: of 2 samples and of 4, (i + 1) us more a sample forward,
// twice that back, and 1 us whatever the samples; the loss takes 7 us of both.
Profile planted(const Model<float>& model) {
  Profile profile;
  for (const std::int64_t rows : {2, 4}) {
    for (std::size_t i = 0; i < model.layers(); ++i) {
      ProfiledLayer one = profiled_shape(model, i);
      one.rows = rows;
      one.forward_seconds = 1e-6 + 1e-6 * static_cast<double>(i + 1) * static_cast<double>(rows);
      // Nothing goes back in front of the first layer with parameters.
      one.backward_seconds = i == 0 ? 0 : 2 * one.forward_seconds;
      profile.layers.push_back(one);
    }
    ProfiledLayer loss = profiled_loss(model.output());
    loss.rows = rows;
    loss.forward_seconds = 7e-6;
    profile.layers.push_back(loss);
  }
  profile.products = {{.rows = 1, .in = 1, .out = 1000, .seconds = 1e-6}};
  profile.optimizers = {{"adamw", 1000, 1e-6}, {"adamw", 3000, 3e-6}, {"sgd", 1000, 5e-6}};
  for (const std::int64_t elements : {1000, 3000}) {
    const double each = 1e-9 * static_cast<double>(elements);
    profile.codecs.push_back({"qsgd:bits=4", elements, 3 * each, 2 * each, 4.25});
    profile.codecs.push_back({"topk:ratio=0.25", elements, 5 * each, 1 * each, 16});
  }
  return profile;
}

// Two hosts of one device each.
class MeshOnAProfile : public ::testing::Test {
 protected:
  MeshOnAProfile() : cluster_(even_cluster(1, 1)) {
    const Profile profile = planted(*model_.part(1, true).value());
    DeviceType& type = cluster_.types.front();
    type.profile = "p.json";
    type.measured = product_times(profile);
    type.times = std::make_shared<const DeviceTimes>(profile);
    cluster_.links.front().latency = 1000;
    cluster_.nodes.front().uplink = 0;
    cluster_.nodes.push_back(cluster_.nodes.front());
    cluster_.nodes.back().name = "second";
  }

  MeshCosts costs(const MeshChoice& choice) {
    const MeshProblem problem = problem_of();
    const auto codec = MeshCompression::make(choice.compressor);
    EXPECT_TRUE(codec.has_value()) << codec.error().message();
    return mesh_costs(problem, choice, mesh_links(cluster_, choice), codec.value()).value();
  }
  std::int64_t ticks(const MeshChoice& choice) {
    return simulate_mesh(choice, mesh_links(cluster_, choice), costs(choice)).value().ticks;
  }
  const std::vector<MeshLayerCost>& layers(const MeshCosts& costs) {
    return costs.replicas.front().front().front().layers;
  }
  MeshProblem problem_of() {
    MeshProblem problem = mesh_problem(cluster_, model_, kRates, 8);
    problem.labels = 1;
    return problem;
  }

  MeshModel model_ = small_mlp();
  Cluster cluster_;
};

TEST_F(MeshOnAProfile, LayersTakeWhatTheirShapeWasMeasuredToTake) {
  for (const std::int64_t rows : {2, 3, 4}) {
    const MeshCosts all = costs({.dp = 2, .micro_batch = rows});
    const auto& found = layers(all);
    for (std::size_t i = 0; i < found.size(); ++i) {
      // Layers 4 and 6 have one shape: of two times the median is the greater one.
      const auto number = static_cast<std::int64_t>(i == 4 ? 7 : i + 1);
      const std::int64_t forward = 1000 + 1000 * number * rows;
      const std::int64_t loss = i + 1 == found.size() ? 7000 : 0;
      EXPECT_NEAR(found[i].forward, forward + loss, 1) << i;  // whole nanoseconds, rounded up
      EXPECT_NEAR(found[i].backward_input + found[i].backward_weight, i == 0 ? 0 : 2 * forward, 2)
          << i;
    }
    // The first layer with parameters derives no gradient of the data; later ones as many products
    // by inputs as by weights.
    EXPECT_EQ(found[1].backward_input, 0);
    EXPECT_NEAR(found[3].backward_input, found[3].backward_weight, 1);
  }
}

TEST_F(MeshOnAProfile, AShareOfALayerTakesItsShareOfTheTime) {
  const MeshCosts all = costs({.tp = 2, .micro_batch = 4});
  const MeshLayerCost& halved = layers(all)[1];
  EXPECT_NEAR(halved.forward, (1000 + 2 * 4 * 1000) / 2, 1);
  EXPECT_NEAR(halved.backward_weight, 1000 + 2 * 4 * 1000, 1);
}

TEST_F(MeshOnAProfile, AShapeThatWasNotMeasuredTakesItsProducts) {
  model_ = MeshModel([](const TensorShare& share, bool /*flush*/) {
    ModelOptions options{"mlp"};
    options.hidden = {50};
    options.share = share;
    return make_model<float>(options, {1, 8, 8}, 10);
  });
  const MeshCosts all = costs({.dp = 2, .micro_batch = 4});
  const auto& found = layers(all);
  EXPECT_EQ(found[1].forward, 4 * 64 * 50);  // a product a nanosecond
  EXPECT_EQ(found[1].backward_weight, 4 * 64 * 50);
  EXPECT_EQ(found[2].forward, 0);
}

std::int64_t computed(const std::vector<MeshLayerCost>& layers) {
  std::int64_t sum = 0;
  for (const MeshLayerCost& one : layers) sum += one.there() + one.input() + one.backward_weight;
  return sum;
}

// All gradients are one bucket, so that nothing is beside anything.
TEST_F(MeshOnAProfile, AStepIsComputationReductionAndUpdate) {
  const MeshChoice choice{.dp = 2, .micro_batch = 4};
  const MeshCosts all = costs(choice);
  double elems = 0;
  for (const MeshLayerCost& one : layers(all)) elems += one.parameters;
  ASSERT_EQ(elems, 64 * 64 + 64 + 64 * 48 + 48 + 48 * 48 + 48 + 48 * 32 + 32 + 32 * 10 + 10);
  const auto sent = static_cast<std::int64_t>(4 * elems);  // half there and half back
  const auto update = static_cast<std::int64_t>(elems);
  EXPECT_NEAR(ticks(choice), computed(layers(all)) + sent + 2 * 1000 + update, 2);
}

TEST_F(MeshOnAProfile, TheProcessorThatComputesAlsoSends) {
  const MeshChoice choice{.dp = 2, .micro_batch = 4};
  const std::int64_t wire = ticks(choice);
  // Less than the wire takes is beside it, more is what the reduction takes.
  cluster_.links.front().processor_seconds_per_byte = 0.5 / kSecond;
  EXPECT_EQ(ticks(choice), wire);
  cluster_.links.front().processor_seconds_per_byte = 3 / kSecond;
  const MeshCosts all = costs(choice);
  double bytes = 0;
  for (const MeshLayerCost& one : layers(all)) bytes += one.reduce.sent;
  EXPECT_NEAR(ticks(choice) - wire, 2 * bytes - 2 * 1000, 2);
}

// Matrices of 1,024 elements and more are encoded, all chunks before they are sent; one's own sum
// once more; then the other's part is decoded to be added, and all of the mean. The others are sent
// as they are, behind the bucket of matrices on the port.
TEST_F(MeshOnAProfile, CodecsTakeTheProcessor) {
  const MeshChoice choice{.dp = 2, .micro_batch = 4, .compressor = "qsgd:bits=4"};
  const MeshCosts all = costs(choice);
  const double coded = 64 * 64 + 64 * 48 + 48 * 48 + 48 * 32;
  const MeshExchange& reduce = layers(all)[1].reduce;
  EXPECT_NEAR(static_cast<double>(reduce.before), 3 * coded, 1);
  EXPECT_NEAR(static_cast<double>(reduce.behind), 0.5 * 3 * coded + 1.5 * 2 * coded, 3);
  EXPECT_LT(reduce.sent, 4 * coded / 6 + 4 * 600);
  EXPECT_GT(reduce.sent, 4 * coded / 8);
  EXPECT_NEAR(static_cast<double>(ticks(choice)),
              static_cast<double>(computed(layers(all)) + reduce.before + reduce.ticks +
                                  reduce.latency + reduce.behind) +
                  coded + 64 + 48 + 48 + 32 + 320 + 10,
              3);
}

TEST_F(MeshOnAProfile, ErrorFeedbackDecodesWhatItSends) {
  const MeshCosts without = costs({.dp = 2, .micro_batch = 4, .compressor = "topk:ratio=0.25"});
  const MeshCosts with =
      costs({.dp = 2, .micro_batch = 4, .compressor = "topk:ratio=0.25,ef=ef14"});
  const MeshExchange& plain = layers(without)[1].reduce;
  const MeshExchange& fed = layers(with)[1].reduce;
  const double coded = 64 * 64 + 64 * 48 + 48 * 48 + 48 * 32;
  EXPECT_NEAR(static_cast<double>(plain.before), 5 * coded, 1);
  EXPECT_NEAR(static_cast<double>(plain.behind), 2 * coded, 1) << "both payloads are added";
  EXPECT_NEAR(static_cast<double>(fed.before), 5 * coded + coded, 2);
  EXPECT_EQ(fed.sent, plain.sent);
}

TEST_F(MeshOnAProfile, RulesAreForTheirParameters) {
  const MeshCosts all =
      costs({.dp = 2, .micro_batch = 4, .compressor = "fc1.*=none; *=topk:ratio=0.25"});
  const MeshExchange& some = layers(all)[3].reduce;  // fc2 is the last of that bucket
  EXPECT_NEAR(static_cast<double>(some.before), 5 * (64 * 48 + 48 * 48 + 48 * 32), 1);
}

// Half of a message's processor time is the sender's, half the receiver's, which waits for it.
TEST_F(MeshOnAProfile, MessagesBetweenStagesTakeBothProcessors) {
  const MeshChoice choice{.pp = 2, .order = {.kind = PipelineKind::kGpipe}, .micro_batch = 4};
  const std::int64_t without = ticks(choice);
  cluster_.links.front().processor_seconds_per_byte = 4 / kSecond;
  const MeshCosts all = costs(choice);
  const MeshStageCost& first = all.replicas.front()[0].front();
  const MeshStageCost& second = all.replicas.front()[1].front();
  ASSERT_GT(first.output_bytes, 0);
  EXPECT_NEAR(static_cast<double>(ticks(choice) - without),
              2 * (first.output_bytes + second.input_bytes), 2);
}

// Steps of an aggregator between two ranks: the processor has what they took beyond what is known
// of them, half of it before anything is sent. A wire that takes no time leaves the sum.
TEST_F(MeshOnAProfile, AStepOfTheProfileIsForetoldAsItWasMeasured) {
  Profile profile;
  profile.links = {{"tcp", 1e-6, 1e9, 0.25e-9}};
  profile.exchanges = {{"tcp", "none", 10'000, 1, 20e-6}, {"tcp", "none", 20'000, 1, 40e-6}};
  cluster_.links.front().processor_seconds_per_byte = 0.25e-9;
  cluster_.links.front().bytes_per_second = 1e18;
  const MeshChoice choice{.dp = 2, .micro_batch = 4};
  const MeshCosts plain = costs(choice);
  cluster_.links.front().times = std::make_shared<const LinkTimes>(profile, "tcp");
  const MeshCosts all = costs(choice);
  const MeshExchange& reduce = layers(all)[1].reduce;
  double elems = 0;
  for (const MeshLayerCost& one : layers(all)) elems += one.parameters;
  EXPECT_NEAR(static_cast<double>(reduce.before + reduce.beside + reduce.latency + reduce.behind),
              2 * elems, 2);
  EXPECT_NEAR(static_cast<double>(reduce.before), static_cast<double>(reduce.behind), 1);
  EXPECT_EQ(reduce.sent, layers(plain)[1].reduce.sent);
  EXPECT_EQ(
      ticks(choice) - simulate_mesh(choice, mesh_links(cluster_, choice), plain).value().ticks,
      reduce.before + reduce.behind);
}

// A step of a compressor that was not measured takes what one more bucket of several was measured
// to take.
TEST_F(MeshOnAProfile, EachBucketTakesItsTime) {
  const MeshChoice choice{.dp = 2, .micro_batch = 4, .compressor = "topk:ratio=0.25"};
  const std::int64_t without = ticks(choice);
  Profile profile;
  profile.exchanges = {{"tcp", "none", 16, 1, 50e-6},
                       {"tcp", "none", 1000, 1, 50e-6},
                       {"tcp", "none", 16, 8, 330e-6}};
  cluster_.links.front().times = std::make_shared<const LinkTimes>(profile, "tcp");
  const MeshCosts all = costs(choice);
  int buckets = 0;
  for (const MeshLayerCost& one : layers(all)) buckets += one.reduce.any() ? 1 : 0;
  ASSERT_EQ(buckets, 1) << "both ways end with the first layer";
  EXPECT_NEAR(static_cast<double>(ticks(choice) - without), 40'000 + 50'000, 2)
      << "what is compressed, whose steps were not measured, and what is not";
}

// Each hop: the wait of its message, and its sender's processor.
TEST_F(MeshOnAProfile, MessagesBetweenStagesAreWaitedFor) {
  const MeshChoice choice{.pp = 2, .order = {.kind = PipelineKind::kGpipe}, .micro_batch = 4};
  const std::int64_t without = ticks(choice);
  Profile profile;
  profile.links = {{"tcp", 1e-6, 1e9, 0}};
  profile.messages = {{"tcp", 51e-6, 20e-6}};
  cluster_.links.front().times = std::make_shared<const LinkTimes>(profile, "tcp");
  EXPECT_EQ(mesh_links(cluster_, choice).replicas.front().hops.at({0, 1}).latency, 1000 + 50'000);
  // The last rank to compute is the first one: it ends with its update, long behind its sending.
  EXPECT_EQ(ticks(choice) - without, 2 * 50'000);
}

TEST_F(MeshOnAProfile, MicroBatchesAreAddedUp) {
  const MeshChoice choice{.dp = 2, .accumulate = 2, .micro_batch = 2};
  const MeshChoice once{.dp = 2, .micro_batch = 4};
  const MeshCosts plain = costs(choice);
  const MeshCosts alone = costs(once);
  Profile profile = planted(*model_.part(1, true).value());
  profile.sums = {{1000, 2e-6}, {2000, 4e-6}};
  cluster_.types.front().times = std::make_shared<const DeviceTimes>(profile);
  const MeshCosts all = costs(choice);
  // One of two micro-batches is added to the other.
  EXPECT_NEAR(
      static_cast<double>(layers(all)[1].backward_weight - layers(plain)[1].backward_weight),
      2 * 4160 / 2.0, 1);
  EXPECT_EQ(layers(all)[2].backward_weight, layers(plain)[2].backward_weight);
  EXPECT_EQ(layers(costs(once))[1].backward_weight, layers(alone)[1].backward_weight);
}

// From the last layer on, as much as a bucket holds; a layer that does not fit begins the next one.
TEST_F(MeshOnAProfile, BucketsAreReducedWithTheirFirstLayer) {
  MeshProblem problem = problem_of();
  problem.bucket_bytes = 4 * (330 + 1568 + 2352);
  const MeshChoice choice{.dp = 2, .micro_batch = 4};
  const MeshCosts found = mesh_costs(problem, choice, mesh_links(cluster_, choice),
                                     MeshCompression::make("none").value())
                              .value();
  std::vector<double> sent;
  for (const MeshLayerCost& one : layers(found)) sent.push_back(one.reduce.sent);
  // flatten, fc1, relu, fc2, relu, fc3, ...
  EXPECT_EQ(sent, (std::vector<double>{0, 4 * 4160, 0, 4 * 3120, 0, 4 * 4250, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace gradwire::mesh_profile_test
