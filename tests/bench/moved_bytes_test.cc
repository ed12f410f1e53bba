// What is counted is counted by hand here, from what each stage has to read and to write.
#include "bench/moved_bytes.h"

#include <gtest/gtest.h>

#include "gradwire/registry.h"

namespace gradwire::bench::moved_bytes_test {
namespace {

constexpr double kGradient = 4000;  // 1000 elements

MovedStep step_of(const std::string& method, std::vector<double> payloads) {
  MovedStep step;
  step.method = method;
  step.gradient = kGradient;
  step.payloads = std::move(payloads);
  step.fused = true;
  return step;
}

void expect_moved(MovedStep step, MovedBytes plain, MovedBytes with_feedback) {
  const MovedBytes without = moved_bytes(step);
  EXPECT_EQ(without.encode, plain.encode) << step.method;
  EXPECT_EQ(without.decode, plain.decode) << step.method;
  step.feedback = true;
  const MovedBytes with = moved_bytes(step);
  EXPECT_EQ(with.encode, with_feedback.encode) << step.method << " with ef14";
  EXPECT_EQ(with.decode, with_feedback.decode) << step.method << " with ef14";
}

TEST(MovedBytes, OfOneRoundAreTheGradientAndThePayloadAndTwoResiduals) {
  expect_moved(step_of("qsgd", {516}), {4516, 4516}, {12516, 4516});
}

// gradient + residual -> p; then p and what was sent -> the next residual.
TEST(MovedBytes, OfPassesAroundACoderAreTheSumAtTheStartAndTheRestAtTheEnd) {
  MovedStep blocks = step_of("block_sparse", {1234});
  blocks.fused = false;
  expect_moved(blocks, {5234, 5234}, {13234, 13234});
}

// Twice the gradient; twice gradient and residual, and the next residual.
TEST(MovedBytes, OfSharedScalesAreTwoLooks) {
  expect_moved(step_of("terngrad", {4, 300}), {8304, 4304}, {20304, 4304});
}

// P from gradient and residual, whose sum is written; Q from that sum; at the end it becomes what
// is left.
TEST(MovedBytes, OfFactorsAreTwoProductsAndTheRestAtTheEnd) {
  expect_moved(step_of("powersgd", {64, 40}), {8104, 4104}, {16104, 12104});
}

TEST(MovedBytes, OfFactorsOfWhatTravelsDenseAreOneLook) {
  MovedStep dense = step_of("powersgd", {4000, 0});
  dense.fused = false;
  expect_moved(dense, {8000, 8000}, {16000, 16000});
}

// The leader's places, of the whole gradient; then ten elements of it, and ten zeros.
TEST(MovedBytes, OfSharedPlacesAreTheChosenElementsAloneInTheSecondRound) {
  expect_moved(step_of("cltk", {40, 40}), {4120, 4080}, {12160, 4080});
}

TEST(MovedBytes, OfStateOfItsOwnAreReadAndWritten) {
  MovedStep signum = step_of("signum", {130});
  signum.kept = 1;
  EXPECT_EQ(moved_bytes(signum).encode, 12130);
  EXPECT_EQ(moved_bytes(signum).decode, 4130);
  MovedStep dgc = step_of("dgc", {80});
  dgc.kept = 2;
  EXPECT_EQ(moved_bytes(dgc).encode, 20080);
}

TEST(MovedBytes, AreToldByTheCodersThemselves) {
  const Registry registry = Registry::builtin();
  const auto told = [&](const std::string& spec, const Shape& shape = Shape::matrix(64, 256)) {
    const auto compressor = registry.make(spec);
    EXPECT_TRUE(compressor.has_value()) << compressor.error().message();
    const auto coder = compressor.value()->open(shape, {});
    EXPECT_TRUE(coder.has_value()) << coder.error().message();
    return moved_step(*compressor.value(), *coder.value(), shape.elems());
  };
  EXPECT_EQ(told("topk:ratio=0.1|qsgd:bits=4").method, "topk");
  EXPECT_EQ(told("none").gradient, 65536);
  EXPECT_EQ(told("none").kept, 0);
  EXPECT_EQ(told("signum").kept, 1);
  EXPECT_EQ(told("dgc:ratio=0.1").kept, 2);
  EXPECT_EQ(told("powersgd:rank=2").kept, 0);
  EXPECT_EQ(told("acpsgd:rank=2", Shape::matrix(1, 256)).kept, 0);  // factors of 1 and 256
  EXPECT_TRUE(told("powersgd:rank=2").fused);
  EXPECT_TRUE(told("topk:ratio=0.1").fused);
  EXPECT_FALSE(told("topk:ratio=0.1|qsgd:bits=4").fused);
  EXPECT_FALSE(told("acpsgd:rank=2").fused);
  EXPECT_FALSE(told("block_sparse").fused);
}

}  // namespace
}  // namespace gradwire::bench::moved_bytes_test
