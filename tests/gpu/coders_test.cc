// Whole steps: a coder on a device sends, averages and keeps what the host's does.
#include <optional>

#include "tests/gpu/device_pair.h"

namespace gradwire::coders_test {
namespace {

using gpu::bits_of;
using gpu::gradient;
using gpu::kOnHost;
using gpu::kStream;
using gpu::on_device;
using gpu::OnDevice;

// A line for each coder, sums and gathers.
const char* const kSpecs[] = {"qsgd:bits=4",
                              "cast:type=fp16",
                              "cast:type=bf16",
                              "fp8:type=e4m3",
                              "signsgd",
                              "signsgd:vote=majority",
                              "signsgd:scale=none",
                              "signsgd:vote=majority,zeros=1",
                              "signum",
                              "block_sparse:block=16",
                              "block_sparse:block=13,index=bitmap",
                              "block_sparse:block=32|qsgd:bits=4",
                              "dgc:ratio=0.1",
                              "onebit:bucket=128",
                              "minmax:bits=4",
                              "absmax:bits=8",
                              "topk:ratio=0.1",
                              "topk:k=9,index=bitmap",
                              "topk:ratio=0.05|qsgd:bits=4",
                              "topk:k=33,index=bitmap|cast:bf16",
                              "none",
                              "lossless",
                              "natural",
                              "natural:bits=8",
                              "mx:type=e2m3",
                              "threshold:tau=3",
                              "threshold:tau=1,index=bitmap|fp8",
                              "randomk:ratio=0.1",
                              "randomk:k=999,unbiased=true",
                              "randomk:ratio=0.2|qsgd:bits=4"};
constexpr std::int64_t kElems = 1000;

// What a step works on; all of one place.
struct Step {
  ConstTensorView grad;
  std::optional<Feedback> feedback;
  ByteSpan room;  // for three payloads
  TensorView mean;
  TensorView own;
};

// Three ranks, one after another; sums are the last one's payload, as if the others sent nothing.
void run_step(const Compressor& method, Compressor::Placement where, const Step& step) {
  std::vector<ConstByteSpan> payloads;
  const std::size_t each = step.room.size() / 3;
  std::unique_ptr<Coder> coder;
  for (int rank = 0; rank < 3; ++rank) {
    where.rank = rank;
    auto opened = method.open(Shape::vector(step.grad.elems()), where);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    coder = std::move(opened).value();
    const Status begun = step.feedback.has_value()
                             ? coder->begin_with_feedback(step.grad, *step.feedback, 2, kStream)
                             : coder->begin(step.grad, 2, kStream);
    ASSERT_TRUE(begun.ok()) << begun.message();
    const auto wrote =
        coder->encode(0, step.room.subspan(static_cast<std::size_t>(rank) * each, each), kStream);
    ASSERT_TRUE(wrote.has_value()) << wrote.error().message();
    payloads.push_back(step.room.subspan(static_cast<std::size_t>(rank) * each, wrote.value()));
    ASSERT_TRUE(cuda::synchronize(kStream).ok());  // before the coder goes
  }
  const std::span<const ConstByteSpan> all(payloads);
  const bool sums = method.round_kind(0, DType::kF32, 3).reduces();
  const Status absorbed = coder->absorb(0, sums ? all.last(1) : all, kStream);
  ASSERT_TRUE(absorbed.ok()) << absorbed.message();
  const Status finished = coder->finish(step.mean, step.own, kStream);
  ASSERT_TRUE(finished.ok()) << finished.message();
  ASSERT_TRUE(cuda::synchronize(kStream).ok());
}

void expect_step_alike(const Compressor& method, bool feeds) {
  const std::vector<float> grad = gradient(kElems, 4);
  const std::vector<float> residual = gradient(kElems, 5);
  const std::size_t room_bytes =
      3 * method.max_payload_bytes(Shape::vector(kElems), DType::kF32, 0, 3);
  std::vector<std::byte> room(room_bytes);
  std::vector<float> next(kElems);
  std::vector<float> mean(kElems);
  std::vector<float> own(kElems);
  std::optional<Feedback> here;
  if (feeds) here = Feedback{const_view_of<float>(residual), view_of<float>(next), 0.5};
  run_step(method, kOnHost,
           {const_view_of<float>(grad), here, room, view_of<float>(mean), view_of<float>(own)});
  const OnDevice grad_there = gpu::uploaded(grad);
  const OnDevice residual_there = gpu::uploaded(residual);
  const OnDevice next_there(kElems * sizeof(float));
  const OnDevice room_there(room_bytes);
  const OnDevice mean_there(kElems * sizeof(float));
  const OnDevice own_there(kElems * sizeof(float));
  std::optional<Feedback> there;
  if (feeds) there = Feedback{residual_there.tensor<float>(), next_there.tensor<float>(), 0.5};
  run_step(method, on_device(),
           {grad_there.tensor<float>(), there, room_there.bytes(), mean_there.tensor<float>(),
            own_there.tensor<float>()});
  EXPECT_EQ(room_there.read(), room);
  EXPECT_EQ(bits_of(mean_there), bits_of(mean));
  EXPECT_EQ(bits_of(own_there), bits_of(own));
  EXPECT_EQ(bits_of(next_there), bits_of(next));
}

TEST(DeviceCoders, AverageAndKeepAsOnTheHost) {
  for (const std::string spec : kSpecs) {
    SCOPED_TRACE(spec);
    const auto made = Registry::builtin().make(spec);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    expect_step_alike(*made.value(), false);
    auto coder = made.value()->open(Shape::vector(kElems), on_device());
    ASSERT_TRUE(coder.has_value()) << coder.error().message();
    const auto host = made.value()->open(Shape::vector(kElems), kOnHost);
    if (!host.value()->takes_feedback()) continue;
    ASSERT_TRUE(coder.value()->takes_feedback());
    expect_step_alike(*made.value(), true);
  }
}

TEST(DeviceCoders, OfOtherTypesAreRefused) {
  for (const std::string spec : kSpecs) {
    const auto made = Registry::builtin().make(spec);
    Compressor::Placement wide = on_device();
    wide.dtype = DType::kF64;
    EXPECT_EQ(made.value()->open(Shape::vector(1), wide).error().code(), Code::kUnsupported)
        << spec;
  }
}

}  // namespace
}  // namespace gradwire::coders_test
