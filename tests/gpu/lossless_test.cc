// lossless on a device: the host's payloads, residuals and judgements, for
// every kind of block.
#include "tests/gpu/sent_pair.h"

namespace gradwire::lossless_test {
namespace {

using gpu::bits_of;
using gpu::data;
using gpu::kinds_of_data;
using gpu::kOnHost;
using gpu::kStream;
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
Coders open_coders(std::int64_t elems, int size = kOnHost.size) {
  Coders coders;
  auto made = Registry::builtin().make("lossless");
  EXPECT_TRUE(made.has_value()) << made.error().message();
  coders.method = std::move(made).value();
  const Shape shape = Shape::vector(elems);
  Compressor::Placement where = kOnHost;
  where.size = size;
  coders.here = opened(coders.method->open(shape, where));
  where.device = gpu::kFirst;
  coders.there = opened(coders.method->open(shape, where));
  coders.room = coders.method->max_payload_bytes(shape, DType::kF32, 0, size);
  return coders;
}

// Bits of all kinds: one exponent, few, all; NaN and infinity; values of bf16,
// of 8 mantissa bits; nothing but zeros.
std::vector<float> bits_of_kind(std::size_t kind, std::size_t count) {
  const RandomStream draws(kind, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t any = draws.word(i);
    const std::uint32_t masks[] = {
        0x807fffffu, 0x83ffffffu, 0xffffffffu, 0xffff0000u, 0xffffff00u, 0x80000000u, 0};
    x[i] = std::bit_cast<float>((any & masks[kind]) | (kind < 2 ? 0x3c000000u : 0));
  }
  return x;
}

// The payload's room is that of the longest.
void expect_alike(Coders& coders, const std::vector<float>& grad,
                  const std::vector<float>* residual, std::size_t skip) {
  const Sent here = sent_here(*coders.here, grad, residual, coders.room);
  const OnDevice grad_there = gpu::uploaded(grad, skip);
  const OnDevice room_there(coders.room, skip == 0 ? 0 : 1);
  const OnDevice next_there(grad.size() * sizeof(float), skip);
  std::optional<OnDevice> residual_there;
  Status begun;
  if (residual == nullptr) {
    begun = coders.there->begin(grad_there.tensor<float>(), 3, kStream);
  } else {
    residual_there.emplace(gpu::uploaded(*residual, skip));
    const Feedback kept{residual_there->tensor<float>(), next_there.tensor<float>(), 0.75};
    begun = coders.there->begin_with_feedback(grad_there.tensor<float>(), kept, 3, kStream);
  }
  ASSERT_TRUE(begun.ok()) << begun.message();
  const auto wrote = coders.there->encode(0, room_there.bytes(), kStream);
  ASSERT_TRUE(wrote.has_value()) << wrote.error().message();
  auto bytes = room_there.read();
  bytes.resize(wrote.value());
  EXPECT_EQ(bytes, here.payload);
  if (residual == nullptr) return;
  EXPECT_EQ(bits_of(next_there), bits_of(here.next));
}

TEST(DeviceLossless, SendsAndKeepsWhatTheHostDoes) {
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{37}, std::size_t{512}, std::size_t{1025}, std::size_t{9001}}) {
    Coders coders = open_coders(static_cast<std::int64_t>(count));
    for (std::size_t kind = 0; kind < kinds_of_data().size(); ++kind) {
      SCOPED_TRACE(std::to_string(count) + " elements, data " + std::to_string(kind));
      const std::vector<float> grad = data(kinds_of_data()[kind], count, 1);
      const std::vector<float> residual = data(kinds_of_data()[kind], count, 2);
      for (const std::size_t skip : {std::size_t{0}, sizeof(float)}) {
        for (const std::vector<float>* kept :
             {static_cast<const std::vector<float>*>(nullptr), &residual}) {
          expect_alike(coders, grad, kept, skip);
        }
      }
    }
  }
}

// What three ranks sent, read by the host and by the device: means and own, bit
// for bit but for which NaN a sum is.
TEST(DeviceLossless, ReadsAndAddsAsTheHostDoes) {
  constexpr std::size_t kCount = 3001;
  for (std::size_t kind = 0; kind < 7; ++kind) {
    SCOPED_TRACE("bits " + std::to_string(kind));
    Coders coders = open_coders(kCount);
    std::vector<std::vector<std::byte>> sent;
    for (std::size_t r = 0; r < 3; ++r) {
      sent.push_back(
          sent_here(*coders.here, bits_of_kind((kind + r) % 7, kCount), nullptr, coders.room)
              .payload);
    }
    const std::vector<float> grad = bits_of_kind(kind, kCount);
    const OnDevice grad_there = gpu::uploaded(grad);
    const OnDevice room_there(coders.room);
    ASSERT_TRUE(coders.there->begin(grad_there.tensor<float>(), 3, kStream).ok());
    const auto wrote = coders.there->encode(0, room_there.bytes(), kStream);
    ASSERT_TRUE(wrote.has_value()) << wrote.error().message();
    auto bytes = room_there.read();
    bytes.resize(wrote.value());
    EXPECT_EQ(bytes, sent[0]);
    std::vector<OnDevice> there;
    for (std::size_t r = 0; r < 3; ++r) there.emplace_back(ConstByteSpan(sent[r]), r);
    const std::vector<ConstByteSpan> payloads(sent.begin(), sent.end());
    std::vector<ConstByteSpan> payloads_there;
    for (const OnDevice& one : there) payloads_there.push_back(one.bytes());
    std::vector<float> mean(kCount);
    std::vector<float> own(kCount);
    const OnDevice mean_there(kCount * sizeof(float), sizeof(float));
    const OnDevice own_there(kCount * sizeof(float));
    ASSERT_TRUE(coders.here->absorb(0, payloads, {}).ok());
    ASSERT_TRUE(coders.there->absorb(0, payloads_there, kStream).ok());
    ASSERT_TRUE(coders.here->finish(view_of<float>(mean), view_of<float>(own), {}).ok());
    const Status done =
        coders.there->finish(mean_there.tensor<float>(), own_there.tensor<float>(), kStream);
    ASSERT_TRUE(done.ok()) << done.message();
    EXPECT_EQ(bits_of(mean_there), bits_of(mean));
    EXPECT_EQ(own_there.read(), gpu::uploaded(own).read());
  }
}

// Every byte of a payload changed in turn, and payloads that are cut or go on.
TEST(DeviceLossless, HostilePayloadsAreJudgedAsOnTheHost) {
  constexpr std::size_t kCount = 530;
  for (const std::size_t kind : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    Coders coders = open_coders(kCount, 2);
    const std::vector<float> grad = bits_of_kind(kind, kCount);
    const OnDevice grad_there = gpu::uploaded(grad);
    const std::vector<std::byte> good = sent_here(*coders.here, grad, nullptr, coders.room).payload;
    const OnDevice good_there{ConstByteSpan(good)};
    int refused = 0;
    for (std::size_t at = 0; at < good.size() + 2;
         at += at < 80 || at + 80 > good.size() ? 1 : 37) {
      SCOPED_TRACE("bits " + std::to_string(kind) + ", byte " + std::to_string(at));
      std::vector<std::byte> hostile = good;
      if (at < good.size()) hostile[at] ^= std::byte{0x1d};
      if (at == good.size()) hostile.pop_back();
      if (at == good.size() + 1) hostile.resize(std::min(good.size() + 1, coders.room));
      const OnDevice hostile_there(hostile, 1);
      ASSERT_TRUE(coders.here->begin(const_view_of<float>(grad), 3, {}).ok());
      ASSERT_TRUE(coders.there->begin(grad_there.tensor<float>(), 3, kStream).ok());
      const std::vector<ConstByteSpan> payloads{good, hostile};
      const std::vector<ConstByteSpan> payloads_there{good_there.bytes(), hostile_there.bytes()};
      ASSERT_TRUE(coders.here->absorb(0, payloads, {}).ok());
      ASSERT_TRUE(coders.there->absorb(0, payloads_there, kStream).ok());
      std::vector<float> mean(kCount);
      const OnDevice mean_there(kCount * sizeof(float));
      const Status judged = coders.here->finish(view_of<float>(mean), {}, {});
      const Status judged_there = coders.there->finish(mean_there.tensor<float>(), {}, kStream);
      ASSERT_EQ(judged_there.code(), judged.code()) << judged_there.message();
      refused += judged.ok() ? 0 : 1;
      if (!judged.ok()) continue;
      EXPECT_EQ(bits_of(mean_there), bits_of(mean));
    }
    EXPECT_GT(refused, 0);
  }
}

}  // namespace
}  // namespace gradwire::lossless_test
