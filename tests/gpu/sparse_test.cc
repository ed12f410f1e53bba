// threshold, randomk and block_sparse on a device: the host's payloads, residuals and judgements.
#include "tests/gpu/sent_pair.h"

namespace gradwire {
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
      EXPECT_EQ(wrote_there.error().code(), wrote.error().code());
      EXPECT_NE(wrote_there.error().message().find("element 4321"), std::string_view::npos)
          << wrote_there.error().message();
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

}  // namespace
}  // namespace gradwire
