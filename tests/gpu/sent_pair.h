// What a coder sends and keeps, on the host and on a device.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/gpu/device_pair.h"

namespace gradwire::gpu {

using Element = std::function<float(const RandomStream&, std::uint64_t)>;

// Light tails, heavy tails, many ties, mostly zeros, one magnitude alone, ascending, one block of
// large elements, which no sample of its neighbours tells of.
inline std::vector<Element> kinds_of_data() {
  return {
      [](const RandomStream& r, std::uint64_t i) { return r.uniform(i) - 0.5f; },
      [](const RandomStream& r, std::uint64_t i) {
        return std::ldexp(r.uniform(i) - 0.5f, static_cast<int>(r.word(i) % 60) - 30);
      },
      [](const RandomStream& r, std::uint64_t i) {
        return static_cast<float>(r.word(i) % 5) - 2.0f;
      },
      [](const RandomStream& r, std::uint64_t i) {
        return r.word(i) % 997 == 0 ? r.uniform(i) : i % 2 == 0 ? 0.0f : -0.0f;
      },
      [](const RandomStream& r, std::uint64_t i) { return r.word(i) % 2 == 0 ? 0.25f : -0.25f; },
      [](const RandomStream&, std::uint64_t i) { return static_cast<float>(i) * 0x1p-20f; },
      [](const RandomStream& r, std::uint64_t i) {
        return (r.uniform(i) - 0.5f) * (i / 2048 == 3 ? 1e6f : 1.0f);
      }};
}

inline std::vector<float> data(const Element& element, std::size_t count, std::uint64_t seed) {
  const RandomStream draws(seed, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = element(draws, i);
  return x;
}

inline std::unique_ptr<Coder> opened(Result<std::unique_ptr<Coder>> coder) {
  EXPECT_TRUE(coder.has_value()) << coder.error().message();
  return coder.has_value() ? std::move(coder).value() : nullptr;
}

struct Sent {
  std::vector<std::byte> payload;
  std::vector<float> next;
};

// A step of the host up to its payload; with a residual, one that keeps something.
inline Sent sent_here(Coder& coder, const std::vector<float>& grad,
                      const std::vector<float>* residual, std::size_t room) {
  Sent sent{std::vector<std::byte>(room), std::vector<float>(grad.size())};
  const Status begun =
      residual == nullptr
          ? coder.begin(const_view_of<float>(grad), 3, {})
          : coder.begin_with_feedback(
                const_view_of<float>(grad),
                {const_view_of<float>(*residual), view_of<float>(sent.next), 0.75}, 3, {});
  EXPECT_TRUE(begun.ok()) << begun.message();
  const auto wrote = coder.encode(0, sent.payload, {});
  EXPECT_TRUE(wrote.has_value()) << wrote.error().message();
  if (wrote.has_value()) sent.payload.resize(wrote.value());
  return sent;
}

// The same step on a device, with memory that begins `skip` bytes behind a boundary.
inline void expect_sent_alike(Coder& coder, const std::vector<float>& grad,
                              const std::vector<float>* residual, const Sent& here,
                              std::size_t skip) {
  const OnDevice grad_there = gpu::uploaded(grad, skip);
  const OnDevice next_there(grad.size() * sizeof(float), skip);
  const OnDevice payload_there(here.payload.size(), skip == 0 ? 0 : 1);
  std::optional<OnDevice> residual_there;
  if (residual != nullptr) residual_there.emplace(gpu::uploaded(*residual, skip));
  const Status begun =
      residual == nullptr
          ? coder.begin(grad_there.tensor<float>(), 3, kStream)
          : coder.begin_with_feedback(
                grad_there.tensor<float>(),
                {residual_there->tensor<float>(), next_there.tensor<float>(), 0.75}, 3, kStream);
  ASSERT_TRUE(begun.ok()) << begun.message();
  const auto wrote = coder.encode(0, payload_there.bytes(), kStream);
  ASSERT_TRUE(wrote.has_value()) << wrote.error().message();
  EXPECT_EQ(wrote.value(), here.payload.size());
  EXPECT_EQ(payload_there.read(), here.payload);
  if (residual == nullptr) return;
  EXPECT_EQ(bits_of(next_there), bits_of(here.next));
}

// Both coders of two ranks are given a good payload and a hostile one, which begins `skip` bytes
// behind a boundary on the device: they judge alike, and where they take it their means are the
// same. Whether it was refused.
inline bool refused_alike(Coder& here, Coder& there, const std::vector<float>& grad,
                          const std::vector<std::byte>& good, const std::vector<std::byte>& hostile,
                          std::size_t skip) {
  const OnDevice grad_there = uploaded(grad);
  const OnDevice good_there(good);
  const OnDevice hostile_there(hostile, skip);
  EXPECT_TRUE(here.begin(const_view_of<float>(grad), 3, {}).ok());
  EXPECT_TRUE(there.begin(grad_there.tensor<float>(), 3, kStream).ok());
  const std::vector<ConstByteSpan> payloads{good, hostile};
  const std::vector<ConstByteSpan> payloads_there{good_there.bytes(), hostile_there.bytes()};
  const Status judged = here.absorb(0, payloads, {});
  const Status judged_there = there.absorb(0, payloads_there, kStream);
  EXPECT_EQ(judged_there.code(), judged.code()) << judged_there.message();
  if (!judged.ok() || !judged_there.ok()) return true;
  std::vector<float> mean(grad.size());
  const OnDevice mean_there(grad.size() * sizeof(float));
  EXPECT_TRUE(here.finish(view_of<float>(mean), {}, {}).ok());
  EXPECT_TRUE(there.finish(mean_there.tensor<float>(), {}, kStream).ok());
  EXPECT_EQ(bits_of(mean_there), bits_of(mean));
  return false;
}

}  // namespace gradwire::gpu
