// threshold, randomk and block_sparse on a device: the host's payloads, residuals and judgements.
#include <limits>

#include "compress/sparse/pairs_of_device.h"
#include "tests/gpu/sent_pair.h"
#include "tests/support/fails.h"

namespace gradwire::sparse_test {
namespace {

using gpu::bits_of;
using gpu::data;
using gpu::expect_sent_alike;
using gpu::kinds_of_data;
using gpu::kOnHost;
using gpu::kStream;
using gpu::on_device;
using gpu::OnDevice;
using gpu::opened;
using gpu::Sent;
using gpu::sent_here;

struct Coders {
  std::unique_ptr<Compressor> method;
  std::unique_ptr<Coder> here;
  std::unique_ptr<Coder> there;
  std::size_t room = 0;
};
Coders open_coders(const std::string& spec, std::int64_t elems) {
  auto made = Registry::builtin().make(spec);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  const Shape shape = Shape::vector(elems);
  Coders coders;
  coders.method = std::move(made).value();
  coders.here = opened(coders.method->open(shape, kOnHost));
  coders.there = opened(coders.method->open(shape, on_device()));
  coders.room = coders.method->max_payload_bytes(shape, DType::kF32, 0, kOnHost.size);
  return coders;
}

// All, none, and few; one draw, chains of draws that were drawn before, every element.
const char* const kSpecs[] = {"threshold:tau=0.3",
                              "threshold:tau=0.49,index=bitmap",
                              "threshold:tau=1e30",
                              "threshold:tau=1e30,index=bitmap",
                              "threshold:tau=1e-45",
                              "randomk:k=1",
                              "randomk:ratio=0.01,unbiased=true",
                              "randomk:ratio=0.7",
                              "randomk:ratio=1",
                              "block_sparse",
                              "block_sparse:block=3",
                              "block_sparse:block=5000,index=bitmap"};

TEST(DeviceSparse, SendsAndKeepsWhatTheHostDoes) {
  for (const std::string spec : kSpecs) {
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{37}, std::size_t{4096}, std::size_t{9001}}) {
      Coders coders = open_coders(spec, static_cast<std::int64_t>(count));
      for (const std::size_t kind : {std::size_t{0}, std::size_t{3}}) {
        SCOPED_TRACE(spec + " of " + std::to_string(count) + ", data " + std::to_string(kind));
        const std::vector<float> grad = data(kinds_of_data()[kind], count, 1);
        const std::vector<float> residual = data(kinds_of_data()[kind], count, 2);
        for (const std::vector<float>* kept :
             {static_cast<const std::vector<float>*>(nullptr), &residual}) {
          if (kept != nullptr && !coders.there->takes_feedback()) continue;
          const Sent here = sent_here(*coders.here, grad, kept, coders.room);
          expect_sent_alike(*coders.there, grad, kept, here, kept == nullptr ? 0 : sizeof(float));
        }
      }
    }
  }
}

// Places of one step are not those of another, and come again with it.
TEST(DeviceSparse, PlacesChangeWithTheStep) {
  Coders coders = open_coders("randomk:ratio=0.1", 5000);
  const std::vector<float> grad = data(kinds_of_data()[5], 5000, 1);
  const OnDevice grad_there = gpu::uploaded(grad);
  std::vector<std::vector<std::byte>> payloads;
  for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0}}) {
    const OnDevice payload(coders.room);
    ASSERT_TRUE(coders.there->begin(grad_there.tensor<float>(), step, kStream).ok());
    ASSERT_TRUE(coders.there->encode(0, payload.bytes(), kStream).has_value());
    payloads.push_back(payload.read());
  }
  EXPECT_NE(payloads[0], payloads[1]);
  EXPECT_EQ(payloads[0], payloads[2]);
}

TEST(DeviceSparse, ElementsThatAreNotFiniteAreJudgedAsOnTheHost) {
  for (const std::string spec : {"threshold:tau=0.3", "randomk:ratio=0.1", "randomk:k=1"}) {
    for (const bool feeds : {false, true}) {
      SCOPED_TRACE(spec + (feeds ? " with feedback" : ""));
      Coders coders = open_coders(spec, 5000);
      std::vector<float> grad = data(kinds_of_data()[0], 5000, 1);
      grad[4321] = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> residual(5000);
      std::vector<float> next(5000);
      const OnDevice grad_there = gpu::uploaded(grad);
      const OnDevice residual_there = gpu::uploaded(residual);
      const OnDevice next_there(5000 * sizeof(float));
      if (feeds) {
        const Feedback here{const_view_of<float>(residual), view_of<float>(next), 1};
        ASSERT_TRUE(coders.here->begin_with_feedback(const_view_of<float>(grad), here, 0, {}).ok());
        const Feedback there{residual_there.tensor<float>(), next_there.tensor<float>(), 1};
        ASSERT_TRUE(
            coders.there->begin_with_feedback(grad_there.tensor<float>(), there, 0, kStream).ok());
      } else {
        ASSERT_TRUE(coders.here->begin(const_view_of<float>(grad), 0, {}).ok());
        ASSERT_TRUE(coders.there->begin(grad_there.tensor<float>(), 0, kStream).ok());
      }
      std::vector<std::byte> payload(coders.room);
      const OnDevice payload_there(coders.room);
      const auto wrote = coders.here->encode(0, payload, {});
      const auto wrote_there = coders.there->encode(0, payload_there.bytes(), kStream);
      ASSERT_EQ(wrote_there.has_value(), wrote.has_value());
      if (wrote.has_value()) continue;
      EXPECT_THAT(wrote_there.error(), fails(wrote.error().code(), "element 4321"));
    }
  }
}

// A count of pairs from the network: every byte of a payload changed in turn.
TEST(DeviceSparse, HostileCountsAreJudgedAsOnTheHost) {
  for (const std::string spec : {"threshold:tau=0.4", "threshold:tau=0.4,index=bitmap",
                                 "block_sparse:block=8", "block_sparse:block=8,index=bitmap"}) {
    auto made = Registry::builtin().make(spec);
    Compressor::Placement where = kOnHost;
    where.size = 2;
    const Shape shape = Shape::vector(45);
    const auto here = opened(made.value()->open(shape, where));
    where.device = gpu::kFirst;
    const auto there = opened(made.value()->open(shape, where));
    const std::vector<float> grad = data(kinds_of_data()[0], 45, 4);
    const std::size_t room = made.value()->max_payload_bytes(shape, DType::kF32, 0);
    const std::vector<std::byte> good = sent_here(*here, grad, nullptr, room).payload;
    int refused = 0;
    for (std::size_t at = 0; at <= good.size(); ++at) {
      SCOPED_TRACE(spec + ", byte " + std::to_string(at));
      std::vector<std::byte> hostile(good.begin(), good.end());
      if (at < good.size()) hostile[at] ^= std::byte{0x81};
      if (at == good.size()) hostile.resize(3);
      refused += gpu::refused_alike(*here, *there, grad, good, hostile, 1) ? 1 : 0;
    }
    EXPECT_GT(refused, 0);
  }
}

// Numbers of a tensor that has few, many, or none that are not 0, the smallest that there is and a
// zero with a sign among them.
std::vector<float> sparse_values(std::size_t count, std::size_t every) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (i % every == 0) values[i] = 0.5F - static_cast<float>(i % 7);
  }
  if (count > 2) {
    values[1] = -0.0F;
    values[2] = -std::numeric_limits<float>::denorm_min();
    values[count - 1] = 3;
  }
  return values;
}

TEST(DevicePairs, AreTheElementsOtherThanZeroAndBecomeTheTensorAgain) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{31}, std::size_t{4096},
                                  std::size_t{4097}, std::size_t{70001}}) {
    auto made = make_pairs_of_device(static_cast<std::int64_t>(count), gpu::kFirst);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    for (const std::size_t every : {std::size_t{1}, std::size_t{13}, std::size_t{100000}}) {
      for (const std::size_t skip : {std::size_t{0}, std::size_t{4}}) {
        SCOPED_TRACE(std::to_string(count) + " elements, every " + std::to_string(every));
        const std::vector<float> values = sparse_values(count, every);
        std::vector<std::uint32_t> index{7};
        std::vector<float> sent;
        const OnDevice tensor = gpu::uploaded(values, skip);
        ASSERT_TRUE(made.value()->fetch(tensor.tensor<float>(), index, sent, kStream).ok());
        std::vector<std::uint32_t> places;
        std::vector<float> expected;
        std::vector<float> halves(count);
        for (std::size_t i = 0; i < count; ++i) {
          if (values[i] == 0) continue;
          places.push_back(static_cast<std::uint32_t>(i));
          expected.push_back(values[i]);
          halves[i] = values[i] * 0.5F;
        }
        EXPECT_EQ(index, places);
        EXPECT_EQ(bits_of(sent), bits_of(expected));
        const OnDevice result = gpu::uploaded(std::vector<float>(count, 9), skip);
        ASSERT_TRUE(made.value()->put(index, sent, 0.5F, result.tensor<float>(), kStream).ok());
        EXPECT_EQ(bits_of(result.values<float>()), bits_of(halves));
      }
    }
  }
}

TEST(DevicePairs, OfNothingAreATensorOfZeros) {
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{5000}}) {
    auto made = make_pairs_of_device(count, gpu::kFirst);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    const std::vector<float> nines(static_cast<std::size_t>(count), 9);
    const OnDevice result = gpu::uploaded(nines);
    ASSERT_TRUE(made.value()->put({}, {}, 2, result.tensor<float>(), kStream).ok());
    EXPECT_EQ(result.values<float>(), std::vector<float>(nines.size()));
  }
}

}  // namespace
}  // namespace gradwire::sparse_test
