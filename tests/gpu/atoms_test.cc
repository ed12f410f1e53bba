// atomo on a device: the host's atoms, their sums and judgements of what was received.
#include <limits>

#include "tests/gpu/hosted_method.h"
#include "tests/gpu/sent_pair.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::atoms_test {
namespace {

using gpu::bits_of;
using gpu::HostedMethod;
using gpu::kOnHost;
using gpu::kStream;
using gpu::on_device;
using gpu::OnDevice;
using gpu::opened;
using gpu::Sent;
using testing::CoderRanks;
using testing::make;
using testing::normals;

struct AtomCase {
  const char* spec;
  Shape shape;
  int ranks;
};

// Wide and tall, fewer rows than a thread has, more ranks than one kernel adds up, atoms that all
// travel, draws that are often empty, and what travels dense.
const AtomCase kCases[] = {
    {"atomo:budget=3", Shape::matrix(12, 40), 3},  {"atomo:budget=2", Shape::matrix(150, 9), 2},
    {"atomo:budget=1", Shape::matrix(3, 300), 19}, {"atomo:budget=100", Shape::matrix(9, 7), 2},
    {"atomo:budget=0.5", Shape::matrix(1, 5), 4},  {"atomo:budget=3", Shape::vector(700), 18}};

TEST(DeviceAtoms, HaveTheHostsBits) {
  for (const AtomCase& one : kCases) {
    SCOPED_TRACE(std::string(one.spec) + " of " + to_string(one.shape));
    const auto method = make(one.spec);
    const HostedMethod hosted(make(one.spec));
    auto here = CoderRanks<float>::open(*method, one.shape, one.ranks);
    auto there = CoderRanks<float>::open(hosted, one.shape, one.ranks);
    ASSERT_TRUE(here.has_value() && there.has_value());
    for (std::uint64_t step = 0; step < 3; ++step) {
      std::vector<std::vector<float>> grads;
      for (int r = 0; r < one.ranks; ++r) {
        grads.push_back(normals<float>(static_cast<std::size_t>(one.shape.elems()),
                                       100 * step + static_cast<std::uint64_t>(r)));
      }
      const auto sent = here.value().step(grads, step);
      const auto sent_there = there.value().step(grads, step);
      ASSERT_TRUE(sent.status.ok()) << sent.status.message();
      ASSERT_TRUE(sent_there.status.ok()) << sent_there.status.message();
      EXPECT_EQ(sent_there.bytes, sent.bytes) << "step " << step;
      EXPECT_EQ(sent_there.own, sent.own) << "step " << step;
      EXPECT_EQ(sent_there.mean, sent.mean) << "step " << step;
    }
  }
}

TEST(DeviceAtoms, AnElementThatIsNotFiniteIsRefused) {
  for (const Shape& shape : {Shape::matrix(6, 10), Shape::vector(60)}) {
    const auto method = make("atomo:budget=2");
    const auto coder = opened(method->open(shape, on_device()));
    std::vector<float> grad = normals<float>(60, 1);
    grad[37] = std::numeric_limits<float>::infinity();
    const OnDevice grad_there = gpu::uploaded(grad);
    const OnDevice payload(method->max_payload_bytes(shape, DType::kF32, 0));
    ASSERT_TRUE(coder->begin(grad_there.tensor<float>(), 0, kStream).ok());
    const auto wrote = coder->encode(0, payload.bytes(), kStream);
    ASSERT_FALSE(wrote.has_value());
    EXPECT_THAT(wrote.error(), fails(Code::kInvalidArgument, "element 37"));
  }
}

// Every byte of a payload changed in turn, payloads that begin anywhere, and other lengths.
TEST(DeviceAtoms, HostilePayloadsAreJudgedAsOnTheHost) {
  for (const Shape& shape : {Shape::matrix(5, 6), Shape::vector(11)}) {
    const auto method = make("atomo:budget=2");
    Compressor::Placement where = kOnHost;
    where.size = 2;
    const auto here = opened(method->open(shape, where));
    where.device = gpu::kFirst;
    const auto there = opened(method->open(shape, where));
    const auto elems = static_cast<std::size_t>(shape.elems());
    const std::vector<float> grad = normals<float>(elems, 4);
    const Sent sent =
        gpu::sent_here(*here, grad, nullptr, method->max_payload_bytes(shape, DType::kF32, 0));
    const std::vector<std::byte>& good = sent.payload;
    int refused = 0;
    for (std::size_t at = 0; at < good.size() + 3; ++at) {
      SCOPED_TRACE(to_string(shape) + ", byte " + std::to_string(at));
      std::vector<std::byte> hostile(good);
      if (at < good.size()) hostile[at] ^= std::byte{0xc1};
      if (at >= good.size())
        hostile.resize(at == good.size() ? 3 : good.size() + 2 * (at - good.size()));
      refused += gpu::refused_alike(*here, *there, grad, good, hostile, at % 4) ? 1 : 0;
    }
    EXPECT_GT(refused, 0);
  }
}

}  // namespace
}  // namespace gradwire::atoms_test
