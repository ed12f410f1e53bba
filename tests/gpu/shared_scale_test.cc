// Methods whose ranks share scales: one rank on a device among ranks on the host sends what it
// would send there, and reads and judges alike.
#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/gpu/device_pair.h"

namespace gradwire::shared_scale_test {
namespace {

using gpu::bits_of;
using gpu::gradient;
using gpu::kCounts;
using gpu::kOnHost;
using gpu::kStream;
using gpu::on_device;
using gpu::OnDevice;

constexpr int kRanks = 3;

const char* const kSpecs[] = {"terngrad",
                              "terngrad:clip=0",
                              "global_qsgd:bits=4",
                              "global_qsgd:bits=8,bucket=100",
                              "global_qsgd:bits=2,norm=l2",
                              "global_qsgd:levels=5,bucket=tensor",
                              "thc",
                              "thc:grid=31,block=64",
                              "thc:block=8192"};

using Bytes = std::vector<std::byte>;

// The elementwise maximum (a NaN wins), or the sum of 32-bit integers.
Bytes reduced(const std::vector<Bytes>& all, int round) {
  Bytes out = all.front();
  for (std::size_t r = 1; r < all.size(); ++r) {
    for (std::size_t i = 0; i < out.size(); i += 4) {
      std::uint32_t a = 0;
      std::uint32_t b = 0;
      std::memcpy(&a, out.data() + i, 4);
      std::memcpy(&b, all[r].data() + i, 4);
      const std::uint32_t both = round == 0 ? std::max(a, b) : a + b;  // scales are not negative
      std::memcpy(out.data() + i, &both, 4);
    }
  }
  return out;
}

// Three ranks on the host and the second of them on the device, too.
class Ranks {
 public:
  Ranks(const std::string& spec, std::size_t elems, bool feeds, std::size_t skip)
      : elems_(elems), skip_(skip), next_(elems), next_there_(elems * sizeof(float), skip) {
    auto made = Registry::builtin().make(spec);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    method_ = std::move(made).value();
    const Shape shape = Shape::vector(static_cast<std::int64_t>(elems));
    for (int r = 0; r < kRanks; ++r) {
      Compressor::Placement where = kOnHost;
      where.rank = r;
      coders_.push_back(std::move(method_->open(shape, where)).value());
      grads_.push_back(gradient(elems, static_cast<std::uint64_t>(r)));
    }
    auto there = method_->open(shape, on_device());
    EXPECT_TRUE(there.has_value()) << there.error().message();
    there_ = std::move(there).value();
    residual_ = gradient(elems, 9);
    grad_there_.emplace(gpu::uploaded(grads_[1], skip));
    residual_there_.emplace(gpu::uploaded(residual_, skip));
    begin(feeds);
  }

  // A round that all take part in; returns what came back.
  Bytes round(int r) {
    std::vector<Bytes> payloads;
    for (int rank = 0; rank < kRanks; ++rank) {
      Bytes payload(method_->max_payload_bytes(Shape::vector(static_cast<std::int64_t>(elems_)),
                                               DType::kF32, r, kRanks));
      const auto wrote = coders_[static_cast<std::size_t>(rank)]->encode(r, payload, {});
      EXPECT_TRUE(wrote.has_value()) << wrote.error().message();
      EXPECT_EQ(wrote.value(), payload.size());
      payloads.push_back(std::move(payload));
    }
    const OnDevice payload_there(payloads[1].size(), skip_ == 0 ? 0 : 1);
    const auto wrote = there_->encode(r, payload_there.bytes(), kStream);
    EXPECT_TRUE(wrote.has_value()) << wrote.error().message();
    EXPECT_EQ(payload_there.read(), payloads[1]) << "round " << r;
    return reduced(payloads, r);
  }
  // Both hear of the same.
  void absorb(int r, const Bytes& back) {
    received_ = back;
    received_there_.emplace(ConstByteSpan(received_), skip_ == 0 ? 0 : 3);
    const std::vector<ConstByteSpan> here{received_};
    const std::vector<ConstByteSpan> there{received_there_->bytes()};
    const Status judged = coders_[1]->absorb(r, here, {});
    const Status judged_there = there_->absorb(r, there, kStream);
    EXPECT_EQ(judged_there.code(), judged.code()) << judged_there.message();
    refused_ = !judged.ok();
    if (r == 0) {
      EXPECT_EQ(coders_[0]->absorb(r, here, {}).code(), judged.code());
      EXPECT_EQ(coders_[2]->absorb(r, here, {}).code(), judged.code());
    }
  }
  void finish() {
    std::vector<float> mean(elems_);
    std::vector<float> own(elems_);
    const OnDevice mean_there(elems_ * sizeof(float), skip_);
    const OnDevice own_there(elems_ * sizeof(float), skip_);
    const Status done = coders_[1]->finish(view_of<float>(mean), view_of<float>(own), {});
    const Status done_there =
        there_->finish(mean_there.tensor<float>(), own_there.tensor<float>(), kStream);
    EXPECT_EQ(done_there.code(), done.code()) << done_there.message();
    refused_ = !done.ok();
    if (refused_) return;
    EXPECT_EQ(bits_of(mean_there), bits_of(mean));
    EXPECT_EQ(bits_of(own_there), bits_of(own));
    EXPECT_EQ(bits_of(next_there_), bits_of(next_));
  }
  bool refused() const { return refused_; }

 private:
  void begin(bool feeds) {
    for (std::size_t r = 0; r < coders_.size(); ++r) {
      const auto grad = const_view_of<float>(grads_[r]);
      const Feedback kept{const_view_of<float>(residual_), view_of<float>(next_), 0.75};
      EXPECT_TRUE((feeds && r == 1 ? coders_[r]->begin_with_feedback(grad, kept, 4, {})
                                   : coders_[r]->begin(grad, 4, {}))
                      .ok());
    }
    const Feedback kept{residual_there_->tensor<float>(), next_there_.tensor<float>(), 0.75};
    const auto grad = grad_there_->tensor<float>();
    const Status begun = feeds ? there_->begin_with_feedback(grad, kept, 4, kStream)
                               : there_->begin(grad, 4, kStream);
    EXPECT_TRUE(begun.ok()) << begun.message();
  }

  std::size_t elems_;
  std::size_t skip_;
  std::unique_ptr<Compressor> method_;
  std::vector<std::unique_ptr<Coder>> coders_;
  std::unique_ptr<Coder> there_;
  std::vector<std::vector<float>> grads_;
  std::vector<float> residual_;
  std::vector<float> next_;
  std::optional<OnDevice> grad_there_;
  std::optional<OnDevice> residual_there_;
  OnDevice next_there_;
  Bytes received_;
  std::optional<OnDevice> received_there_;
  bool refused_ = false;
};

TEST(DeviceSharedScales, SendKeepAndReadAsTheHostDoes) {
  for (const std::string spec : kSpecs) {
    for (const std::size_t count : kCounts) {
      for (const bool feeds : {false, true}) {
        SCOPED_TRACE(spec + " of " + std::to_string(count) + (feeds ? " with feedback" : ""));
        Ranks ranks(spec, count, feeds, feeds ? sizeof(float) : 0);
        ranks.absorb(0, ranks.round(0));
        ranks.absorb(1, ranks.round(1));
        ranks.finish();
        EXPECT_FALSE(ranks.refused());
      }
    }
  }
}

// Every byte of what comes back changed in turn.
TEST(DeviceSharedScales, HostileRoundsAreJudgedAsOnTheHost) {
  for (const std::string spec : kSpecs) {
    int refused = 0;
    for (const int hostile : {0, 1}) {
      const std::size_t size = Ranks(spec, 45, false, 0).round(0).size();
      for (std::size_t at = 0; at < (hostile == 0 ? size : 24); ++at) {
        for (const std::byte flip : {std::byte{0xff}, std::byte{0x80}}) {
          SCOPED_TRACE(spec + ", round " + std::to_string(hostile) + ", byte " +
                       std::to_string(at));
          Ranks ranks(spec, 45, false, 0);
          Bytes scales = ranks.round(0);
          if (hostile == 0) scales[at] ^= flip;
          ranks.absorb(0, scales);
          if (ranks.refused() || hostile == 0) {
            refused += ranks.refused() ? 1 : 0;
            continue;
          }
          Bytes sums = ranks.round(1);
          if (at < sums.size()) sums[at] ^= flip;
          ranks.absorb(1, sums);
          ranks.finish();
          refused += ranks.refused() ? 1 : 0;
        }
      }
    }
    EXPECT_GT(refused, 0) << spec;
  }
}

// A rank whose gradient is not finite makes all of them decode to NaN; what is left for the next
// step is not finite then, and refused.
TEST(DeviceSharedScales, ANaNOfAnotherRankIsJudgedAsOnTheHost) {
  for (const std::string spec : kSpecs) {
    for (const bool feeds : {false, true}) {
      SCOPED_TRACE(spec);
      Ranks ranks(spec, 300, feeds, 0);
      Bytes scales = ranks.round(0);
      const std::uint32_t nan = 0x7fc00000u;
      std::memcpy(scales.data(), &nan, 4);
      ranks.absorb(0, scales);
      ranks.absorb(1, ranks.round(1));
      ranks.finish();
      EXPECT_EQ(ranks.refused(), feeds);
    }
  }
}

}  // namespace
}  // namespace gradwire::shared_scale_test
