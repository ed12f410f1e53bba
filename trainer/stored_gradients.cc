#include "trainer/stored_gradients.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/clipping.h"

namespace gradwire {
namespace {

constexpr std::size_t kPart = 1024;  // elements that are worked on together, on the stack

// The largest finite number that a precision holds.
float largest(Precision precision) {
  return precision == Precision::kBF16 ? 0x1.fep127F : 65504.0F;
}

}  // namespace

Result<StoredGradients> StoredGradients::create(const MemoryArena& arena, Precision precision,
                                                std::size_t elems) {
  StoredGradients made;
  made.precision_ = precision;
  GW_ASSIGN(made.buffer_, arena.allocate(MemoryClass::kGradients, elems * sizeof(std::uint16_t)));
  return made;
}

std::span<std::uint16_t> StoredGradients::stored() const {
  const ByteSpan bytes = buffer_.bytes();
  return {reinterpret_cast<std::uint16_t*>(bytes.data()), bytes.size() / sizeof(std::uint16_t)};
}

void StoredGradients::begin_step(double loss_scale) {
  scale_ = loss_scale;
  length_ = most_ = 0;
}

void StoredGradients::keep_scaled(std::span<const float> values, std::size_t first) {
  store(precision_, values, stored().subspan(first, values.size()));
}

void StoredGradients::add_scaled(std::size_t first, std::span<float> values) const {
  std::array<float, kPart> wide{};
  for (std::size_t at = 0; at < values.size(); at += kPart) {
    const std::span<float> part = values.subspan(at, std::min(kPart, values.size() - at));
    load(precision_, stored().subspan(first + at, part.size()), std::span(wide).first(part.size()));
    for (std::size_t i = 0; i < part.size(); ++i) part[i] += wide[i];
  }
}

void StoredGradients::keep(std::span<const float> values, std::size_t first) {
  const auto scale = static_cast<float>(scale_);
  const float most = largest(precision_);
  std::array<float, kPart> scaled{};
  for (std::size_t at = 0; at < values.size(); at += kPart) {
    const std::span<const float> part = values.subspan(at, std::min(kPart, values.size() - at));
    for (std::size_t i = 0; i < part.size(); ++i) {
      scaled[i] = std::isfinite(part[i]) ? std::clamp(part[i] * scale, -most, most) : part[i];
    }
    keep_scaled(std::span(scaled).first(part.size()), first + at);
  }
}

void StoredGradients::read(std::size_t first, std::span<float> values) const {
  load(precision_, stored().subspan(first, values.size()), values);
  if (scale_ != 1) {
    const auto back = static_cast<float>(1 / scale_);
    for (float& value : values) value *= back;
  }
  clip_to(values, length_, most_);
}

bool StoredGradients::finite() const {
  std::array<float, kPart> wide{};
  for (std::size_t at = 0; at < stored().size(); at += kPart) {
    const std::size_t count = std::min(kPart, stored().size() - at);
    load(precision_, stored().subspan(at, count), std::span(wide).first(count));
    if (!all_finite(std::span(wide).first(count))) return false;
  }
  return true;
}

double StoredGradients::norm() const {
  std::array<float, kPart> wide{};
  double squares = 0;
  for (std::size_t at = 0; at < stored().size(); at += kPart) {
    const std::span<float> part = std::span(wide).first(std::min(kPart, stored().size() - at));
    load(precision_, stored().subspan(at, part.size()), part);
    squares += sum_of_squares(part);
  }
  return std::sqrt(squares) / scale_;
}

void StoredGradients::shorten(double length, double most) {
  length_ = length;
  most_ = most;
}

}  // namespace gradwire
