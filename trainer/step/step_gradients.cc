#include "trainer/step/step_gradients.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "device/host_copy.h"
#include "device/ops.h"
#include "trainer/cuda/make_kernels.h"
#include "trainer/step/clipping.h"

namespace gradwire {
namespace {

constexpr std::size_t kTogether = 1024;  // elements that are widened together, on the stack

// Calls visit(span of fp32) for all of `stored`, some at a time.
template <typename Visit>
void widened(Precision precision, std::span<const std::uint16_t> stored, Visit visit) {
  std::array<float, kTogether> wide{};
  for (std::size_t at = 0; at < stored.size(); at += kTogether) {
    const std::size_t count = std::min(kTogether, stored.size() - at);
    load(precision, stored.subspan(at, count), std::span(wide).first(count));
    visit(std::span<const float>(wide).first(count));
  }
}

}  // namespace

Result<StepGradients> StepGradients::create(const MemoryArena& arena, std::vector<TensorView> parts,
                                            const WayToHost& to_host) {
  StepGradients made;
  if (!parts.empty()) made.precision_ = precision_of(parts.front().dtype());
  made.parts_ = std::move(parts);
  made.stream_ = arena.stream();
  if (arena.device().space != MemorySpace::kCuda) return made;
  GW_ASSIGN(made.kernels_, make_step_kernels(arena.stream()));
  if (made.precision_ != Precision::kF32) {
    GW_ASSIGN(made.there_, make_stored_kernels(made.precision_, arena.stream()));
  }
  GW_ASSIGN(made.numbers_, ReadBack::create(arena, made.parts_.size() * sizeof(double)));
  if (to_host.arena != nullptr && made.there_ != nullptr) {
    const auto elems = static_cast<std::size_t>(std::max<std::int64_t>(to_host.elems, 1));
    GW_ASSIGN(made.coming_,
              to_host.arena->allocate(MemoryClass::kOther, elems * sizeof(std::uint16_t)));
  }
  return made;
}

void StepGradients::begin_step(double scale) {
  scale_ = scale;
  length_ = most_ = 0;
}

std::size_t StepGradients::width() const { return size_of(dtype_of(precision_)); }

std::span<float> StepGradients::floats(std::size_t part) const {
  const TensorView& view = parts_[part];
  return {reinterpret_cast<float*>(view.data()), static_cast<std::size_t>(view.elems())};
}

std::span<const std::uint16_t> StepGradients::halves(std::size_t part) const {
  const TensorView& view = parts_[part];
  return {reinterpret_cast<const std::uint16_t*>(view.data()),
          static_cast<std::size_t>(view.elems())};
}

std::span<const float> StepGradients::values(int index) const {
  return floats(static_cast<std::size_t>(index));
}

// What is stored in 16 bits is shortened here, what is in fp32 has been where it lies.
Status StepGradients::read_part(std::size_t part, std::size_t first,
                                std::span<float> values) const {
  const auto back = static_cast<float>(1 / scale_);
  if (precision_ == Precision::kF32) {
    const TensorView from = parts_[part].slice(static_cast<std::int64_t>(first),
                                               static_cast<std::int64_t>(values.size()));
    const TensorView to(reinterpret_cast<std::byte*>(values.data()), from.shape(), DType::kF32,
                        from.device());
    return scaled_copy(from, 1 / scale_, to, stream_);
  }
  const std::span<const std::uint16_t> stored = halves(part).subspan(first, values.size());
  if (there_ != nullptr) {
    const bool longer = length_ > most_ && std::isfinite(length_);
    return there_->read(stored, back, longer ? static_cast<float>(most_ / length_) : 1.0F, values);
  }
  load(precision_, stored, values);
  finish_read(values);
  return {};
}

// Of widened values: without the scale, and shortened.
void StepGradients::finish_read(std::span<float> values) const {
  if (scale_ != 1) {
    const auto back = static_cast<float>(1 / scale_);
    for (float& value : values) value *= back;
  }
  clip_to(values, length_, most_);
}

Status StepGradients::read(std::size_t first, std::span<float> values) const {
  return for_each_part(first, values.size(),
                       [&](std::size_t part, std::size_t at, std::size_t done, std::size_t count) {
                         return read_part(part, at, values.subspan(done, count));
                       });
}

// What is in fp32 there comes as it is, and 16 bits are widened here.
Status StepGradients::read_to_host(std::size_t first, std::span<float> values) const {
  if (kernels_ == nullptr) return read(first, values);
  const auto piece = [&](std::size_t part, std::size_t at, std::size_t done, std::size_t count) {
    const std::span<float> to = values.subspan(done, count);
    const TensorView from =
        parts_[part].slice(static_cast<std::int64_t>(at), static_cast<std::int64_t>(count));
    const ByteSpan here = there_ == nullptr ? std::as_writable_bytes(to)
                                            : coming_.bytes().first(count * sizeof(std::uint16_t));
    GW_TRY(copy_bytes(from.bytes(), stream_.device, here,
                      there_ == nullptr ? Device() : coming_.device(), stream_));
    GW_TRY(wait_for(stream_));
    if (there_ == nullptr) {
      if (scale_ != 1) {
        for (float& value : to) value *= static_cast<float>(1 / scale_);
      }
      return Status();
    }
    load(precision_, {reinterpret_cast<const std::uint16_t*>(here.data()), count}, to);
    finish_read(to);
    return Status();
  };
  return for_each_part(first, values.size(), piece);
}

bool StepGradients::finite_here(std::size_t part) const {
  if (precision_ == Precision::kF32) return all_finite(floats(part));
  bool finite = true;
  widened(precision_, halves(part),
          [&](std::span<const float> wide) { finite = finite && all_finite(wide); });
  return finite;
}

Result<bool> StepGradients::finite() const {
  if (kernels_ == nullptr) {
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      if (!finite_here(part)) return false;
    }
    return true;
  }
  const auto bad = numbers_.there<std::uint32_t>();
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    if (parts_[part].empty()) continue;
    GW_TRY(there_ != nullptr ? there_->find_not_finite(halves(part), bad.subspan(part, 1))
                             : kernels_->find_not_finite(floats(part), bad.subspan(part, 1)));
  }
  GW_ASSIGN(const std::span<const std::uint32_t> found, numbers_.read<std::uint32_t>());
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    if (!parts_[part].empty() && found[part] != 0) return false;
  }
  return true;
}

double StepGradients::squares_here(std::size_t part) const {
  if (precision_ == Precision::kF32) return sum_of_squares(floats(part));
  double sum = 0;
  widened(precision_, halves(part),
          [&](std::span<const float> wide) { sum += sum_of_squares(wide); });
  return sum;
}

Result<std::vector<double>> StepGradients::squares() const {
  std::vector<double> sums(parts_.size());
  if (kernels_ == nullptr) {
    for (std::size_t part = 0; part < sums.size(); ++part) sums[part] = squares_here(part);
  } else {
    const auto there = numbers_.there<double>();
    for (std::size_t part = 0; part < sums.size(); ++part) {
      if (parts_[part].empty()) continue;
      GW_TRY(there_ != nullptr ? there_->sum_of_squares(halves(part), there.subspan(part, 1))
                               : kernels_->sum_of_squares(floats(part), there.subspan(part, 1)));
    }
    GW_ASSIGN(const std::span<const double> found, numbers_.read<double>());
    for (std::size_t part = 0; part < sums.size(); ++part) {
      if (!parts_[part].empty()) sums[part] = found[part];
    }
  }
  for (double& sum : sums) sum /= scale_ * scale_;
  return sums;
}

Status StepGradients::shorten(double length, double most) {
  length_ = length;
  most_ = most;
  if (precision_ != Precision::kF32) return {};
  if (kernels_ == nullptr) {
    for (std::size_t part = 0; part < parts_.size(); ++part) clip_to(floats(part), length, most);
    return {};
  }
  std::vector<double> square(parts_.size(), length * length);
  GW_TRY(numbers_.write(std::span<const double>(square)));
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    if (parts_[part].empty()) continue;
    GW_TRY(kernels_->clip(numbers_.there<double>().first(1), most, floats(part)));
  }
  return {};
}

}  // namespace gradwire
