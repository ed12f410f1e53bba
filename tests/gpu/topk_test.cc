// The selection on a device: the host's indices, values and residuals, whatever the data look like,
// through candidates or not.
#include "compress/topk/topk_device.h"
#include "tests/gpu/sent_pair.h"
#include "tests/support/fails.h"

namespace gradwire::topk_test {
namespace {

using cuda::TopkWay;
using gpu::bits_of;
using gpu::data;
using gpu::Element;
using gpu::expect_sent_alike;
using gpu::kinds_of_data;
using gpu::kOnHost;
using gpu::kStream;
using gpu::on_device;
using gpu::OnDevice;
using gpu::opened;
using gpu::Sent;
using gpu::sent_here;

// Sizes below and above what a sample is taken of, with parts of tiles.
TEST(DeviceTopk, BothWaysChooseWhatTheHostChooses) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{4096},
                                  std::size_t{9001}, std::size_t{40963}}) {
    const Shape shape = Shape::vector(static_cast<std::int64_t>(count));
    for (const std::size_t k : {std::size_t{1}, count / 100 + 1, count / 3 + 1, count}) {
      const auto method = Registry::builtin().make("topk:k=" + std::to_string(k));
      const auto host = opened(method.value()->open(shape, kOnHost));
      const std::size_t room = method.value()->max_payload_bytes(shape, DType::kF32, 0);
      std::size_t kind = 0;
      for (const Element& element : kinds_of_data()) {
        SCOPED_TRACE(std::to_string(k) + " of " + std::to_string(count) + ", data " +
                     std::to_string(kind));
        const std::vector<float> grad = data(element, count, 1);
        const std::vector<float> residual = data(element, count, 2);
        const bool feeds = kind++ % 2 == 0;
        const Sent here = sent_here(*host, grad, feeds ? &residual : nullptr, room);
        for (const TopkWay way : {TopkWay::kSampled, TopkWay::kPlain}) {
          if (way == TopkWay::kPlain && count > 10000 && k != count / 100 + 1) continue;
          const auto there = opened(cuda::make_topk_coder({}, k, shape, on_device(), way));
          expect_sent_alike(*there, grad, feeds ? &residual : nullptr, here,
                            way == TopkWay::kPlain ? sizeof(float) : 0);
        }
      }
    }
  }
}

TEST(DeviceTopk, BitmapsAreTheHosts) {
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{45}, std::size_t{8192}, std::size_t{40963}}) {
    const Shape shape = Shape::vector(static_cast<std::int64_t>(count));
    const auto method = Registry::builtin().make("topk:ratio=0.04,index=bitmap");
    const auto host = opened(method.value()->open(shape, kOnHost));
    const auto there = opened(method.value()->open(shape, on_device()));
    const std::size_t room = method.value()->max_payload_bytes(shape, DType::kF32, 0);
    const std::vector<float> grad = data(kinds_of_data()[2], count, 1);
    const std::vector<float> residual = data(kinds_of_data()[0], count, 1);
    const Sent here = sent_here(*host, grad, &residual, room);
    for (const std::size_t skip : {std::size_t{0}, sizeof(float)}) {
      SCOPED_TRACE(std::to_string(count) + " from " + std::to_string(skip));
      expect_sent_alike(*there, grad, &residual, here, skip);
    }
  }
}

TEST(DeviceTopk, NaNTravelsFirstAndIsRefusedUnderErrorFeedback) {
  for (const std::size_t count : {std::size_t{5000}, std::size_t{40000}}) {
    const Shape shape = Shape::vector(static_cast<std::int64_t>(count));
    const auto method = Registry::builtin().make("topk:ratio=0.01");
    const auto host = opened(method.value()->open(shape, kOnHost));
    const auto there = opened(method.value()->open(shape, on_device()));
    std::vector<float> grad = data(kinds_of_data()[0], count, 1);
    grad[700] = std::bit_cast<float>(0xffc12345u);
    grad[count - 1] = -std::numeric_limits<float>::infinity();
    const std::size_t room = method.value()->max_payload_bytes(shape, DType::kF32, 0);
    expect_sent_alike(*there, grad, nullptr, sent_here(*host, grad, nullptr, room), 0);

    const OnDevice grad_there = gpu::uploaded(grad);
    const OnDevice residual_there(count * sizeof(float));
    const OnDevice next_there(count * sizeof(float));
    const OnDevice payload_there(room);
    const Feedback feedback{residual_there.tensor<float>(), next_there.tensor<float>(), 1};
    ASSERT_TRUE(there->begin_with_feedback(grad_there.tensor<float>(), feedback, 0, kStream).ok());
    const auto wrote = there->encode(0, payload_there.bytes(), kStream);
    ASSERT_FALSE(wrote.has_value());
    EXPECT_THAT(wrote.error(), fails(Code::kInvalidArgument, "element 700"));
  }
}

// What host and device make of one rank's payload among two.
void expect_judged_alike(Coder& here, Coder& there, const std::vector<std::byte>& good,
                         const std::vector<std::byte>& hostile, int& refused) {
  std::vector<float> grad(45);
  ASSERT_TRUE(here.begin(const_view_of<float>(grad), 3, {}).ok());
  const OnDevice grad_there = gpu::uploaded(grad);
  ASSERT_TRUE(there.begin(grad_there.tensor<float>(), 3, kStream).ok());
  const std::vector<ConstByteSpan> payloads{good, hostile};
  const Status judged = here.absorb(0, payloads, {});
  const OnDevice good_there(good);
  const OnDevice hostile_there(hostile, 1);
  const std::vector<ConstByteSpan> payloads_there{good_there.bytes(), hostile_there.bytes()};
  const Status judged_there = there.absorb(0, payloads_there, kStream);
  ASSERT_EQ(judged_there.code(), judged.code()) << judged_there.message();
  refused += judged.ok() ? 0 : 1;
  std::vector<float> mean(45);
  const OnDevice mean_there(45 * sizeof(float));
  const Status finished = here.finish(view_of<float>(mean), {}, {});
  ASSERT_EQ(there.finish(mean_there.tensor<float>(), {}, kStream).code(), finished.code());
  if (!finished.ok()) return;
  EXPECT_EQ(bits_of(mean_there), bits_of(mean));
}

TEST(DeviceTopk, HostilePayloadsAreJudgedAsOnTheHost) {
  for (const std::string spec : {"topk:k=6", "topk:k=6,index=bitmap", "topk:k=6|qsgd:bits=4"}) {
    const auto method = Registry::builtin().make(spec);
    const Shape shape = Shape::vector(45);
    Compressor::Placement where = kOnHost;
    where.size = 2;
    const auto here = opened(method.value()->open(shape, where));
    where.device = gpu::kFirst;
    const auto there = opened(method.value()->open(shape, where));
    const std::size_t room = method.value()->max_payload_bytes(shape, DType::kF32, 0);
    const Sent good = sent_here(*here, data(kinds_of_data()[0], 45, 4), nullptr, room);
    int refused = 0;
    for (std::size_t at = 0; at < room; ++at) {
      for (const std::byte flip : {std::byte{0xff}, std::byte{0x80}, std::byte{0x11}}) {
        SCOPED_TRACE(spec + ", byte " + std::to_string(at));
        std::vector<std::byte> hostile = good.payload;
        hostile[at] ^= flip;
        expect_judged_alike(*here, *there, good.payload, hostile, refused);
      }
    }
    EXPECT_GT(refused, 0) << spec;
    std::vector<std::byte> shorter = good.payload;
    shorter.pop_back();
    expect_judged_alike(*here, *there, good.payload, shorter, refused);
  }
}

TEST(DeviceTopk, SumsManyRanksAsTheHostDoes) {
  constexpr int kRanks = 70;  // more than a kernel takes at a time
  constexpr std::int64_t kElems = 5000;
  const auto method = Registry::builtin().make("topk:k=90");
  const Shape shape = Shape::vector(kElems);
  Compressor::Placement where = kOnHost;
  where.size = kRanks;
  const auto here = opened(method.value()->open(shape, where));
  where.device = gpu::kFirst;
  const auto there = opened(method.value()->open(shape, where));
  const std::size_t room = method.value()->max_payload_bytes(shape, DType::kF32, 0);
  std::vector<std::vector<std::byte>> payloads;
  std::vector<OnDevice> payloads_there;
  std::vector<ConstByteSpan> received;
  std::vector<ConstByteSpan> received_there;
  for (int r = 0; r < kRanks; ++r) {
    const auto grad = data(kinds_of_data()[static_cast<std::size_t>(r) % 4], kElems,
                           static_cast<std::uint64_t>(r));
    payloads.push_back(sent_here(*here, grad, nullptr, room).payload);
    payloads_there.emplace_back(payloads.back());
  }
  for (std::size_t r = 0; r < payloads.size(); ++r) {
    received.emplace_back(payloads[r]);
    received_there.emplace_back(payloads_there[r].bytes());
  }
  std::vector<float> mean(kElems);
  const OnDevice mean_there(kElems * sizeof(float));
  ASSERT_TRUE(here->absorb(0, received, {}).ok());
  ASSERT_TRUE(here->finish(view_of<float>(mean), {}, {}).ok());
  const Status absorbed = there->absorb(0, received_there, kStream);
  ASSERT_TRUE(absorbed.ok()) << absorbed.message();
  ASSERT_TRUE(there->finish(mean_there.tensor<float>(), {}, kStream).ok());
  EXPECT_EQ(bits_of(mean_there), bits_of(mean));
}

TEST(DeviceTopk, CodingsThatItDoesNotWriteAreRefusedByName) {
  for (const std::string coding : {"gaps", "auto"}) {
    const auto method = Registry::builtin().make("topk:k=3,index=" + coding);
    const auto coder = method.value()->open(Shape::vector(9), on_device());
    ASSERT_FALSE(coder.has_value());
    EXPECT_THAT(coder.error(), fails(Code::kUnsupported, "index=" + coding));
  }
}

}  // namespace
}  // namespace gradwire::topk_test
