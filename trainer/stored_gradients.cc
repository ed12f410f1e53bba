#include "trainer/stored_gradients.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/clipping.h"
#include "trainer/cuda/make_kernels.h"

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
  made.stream_ = arena.stream();
  GW_ASSIGN(made.there_, make_stored_kernels(precision, arena.stream()));
  if (made.there_ != nullptr) {
    GW_ASSIGN(made.numbers_, ReadBack::create(arena, sizeof(double)));
  }
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

Status StoredGradients::keep_scaled(std::span<const float> values, std::size_t first) {
  return store(precision_, values, stored().subspan(first, values.size()), stream_);
}

Status StoredGradients::add_scaled(std::span<const float> values, std::size_t first) {
  const std::span<std::uint16_t> sums = stored().subspan(first, values.size());
  if (there_ != nullptr) return there_->add(values, sums);
  std::array<std::uint16_t, kPart> narrow{};
  std::array<float, kPart> own{};
  std::array<float, kPart> wide{};
  for (std::size_t at = 0; at < values.size(); at += kPart) {
    const std::size_t count = std::min(kPart, values.size() - at);
    store(precision_, values.subspan(at, count), std::span(narrow).first(count));
    load(precision_, std::span(narrow).first(count), std::span(own).first(count));
    load(precision_, sums.subspan(at, count), std::span(wide).first(count));
    for (std::size_t i = 0; i < count; ++i) own[i] += wide[i];
    store(precision_, std::span(own).first(count), sums.subspan(at, count));
  }
  return {};
}

Status StoredGradients::keep(std::span<const float> values, std::size_t first) {
  const auto scale = static_cast<float>(scale_);
  const float most = largest(precision_);
  if (there_ != nullptr) {
    return there_->keep(values, scale, most, stored().subspan(first, values.size()));
  }
  std::array<float, kPart> scaled{};
  for (std::size_t at = 0; at < values.size(); at += kPart) {
    const std::span<const float> part = values.subspan(at, std::min(kPart, values.size() - at));
    for (std::size_t i = 0; i < part.size(); ++i) {
      scaled[i] = std::isfinite(part[i]) ? std::clamp(part[i] * scale, -most, most) : part[i];
    }
    GW_TRY(keep_scaled(std::span(scaled).first(part.size()), first + at));
  }
  return {};
}

Status StoredGradients::read(std::size_t first, std::span<float> values) const {
  if (there_ != nullptr) {
    const bool longer = length_ > most_ && std::isfinite(length_);
    return there_->read(stored().subspan(first, values.size()), static_cast<float>(1 / scale_),
                        longer ? static_cast<float>(most_ / length_) : 1.0F, values);
  }
  load(precision_, stored().subspan(first, values.size()), values);
  if (scale_ != 1) {
    const auto back = static_cast<float>(1 / scale_);
    for (float& value : values) value *= back;
  }
  clip_to(values, length_, most_);
  return {};
}

Result<bool> StoredGradients::finite() const {
  if (there_ != nullptr) {
    GW_TRY(there_->find_not_finite(stored(), numbers_.there<std::uint32_t>().first(1)));
    GW_ASSIGN(const std::span<const std::uint32_t> bad, numbers_.read<std::uint32_t>());
    return bad[0] == 0;
  }
  std::array<float, kPart> wide{};
  for (std::size_t at = 0; at < stored().size(); at += kPart) {
    const std::size_t count = std::min(kPart, stored().size() - at);
    load(precision_, stored().subspan(at, count), std::span(wide).first(count));
    if (!all_finite(std::span(wide).first(count))) return false;
  }
  return true;
}

Result<double> StoredGradients::norm() const {
  if (there_ == nullptr) return std::sqrt(sum_of_squares()) / scale_;
  GW_TRY(there_->sum_of_squares(stored(), numbers_.there<double>()));
  GW_ASSIGN(const std::span<const double> squares, numbers_.read<double>());
  return std::sqrt(squares[0]) / scale_;
}

double StoredGradients::sum_of_squares() const {
  std::array<float, kPart> wide{};
  double squares = 0;
  for (std::size_t at = 0; at < stored().size(); at += kPart) {
    const std::span<float> part = std::span(wide).first(std::min(kPart, stored().size() - at));
    load(precision_, stored().subspan(at, part.size()), part);
    squares += gradwire::sum_of_squares(part);
  }
  return squares;
}

void StoredGradients::shorten(double length, double most) {
  length_ = length;
  most_ = most;
}

}  // namespace gradwire
