// A residual at rest in a device's memory, in one of its storages (stored_residual.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compress/error_feedback/residual_kernels.h"
#include "compress/error_feedback/stored_residual.h"
#include "device/cuda/memory_calls.h"
#include "gradwire/buffer.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

static_assert(StoreResidual::kBlock == kResidualBlock);

class ResidualOnDevice {
 public:
  static Result<ResidualOnDevice> open(const Shape& shape, ResidualStorage storage, Device device) {
    const auto count = static_cast<std::size_t>(shape.elems());
    ResidualOnDevice residual;
    residual.shape_ = shape;
    residual.storage_ = storage;
    const std::size_t each = storage == ResidualStorage::kFull   ? 4
                             : storage == ResidualStorage::kBf16 ? 2
                                                                 : 1;
    GW_ASSIGN(residual.elements_, Buffer::allocate(count * each, device));
    const std::size_t blocks = (count + kResidualBlock - 1) / kResidualBlock;
    GW_ASSIGN(residual.scales_, Buffer::allocate(blocks * sizeof(float), device));
    return Result<ResidualOnDevice>(std::move(residual));
  }

  RestingResidual at_rest() const {
    std::byte* const data = elements_.bytes().data();
    switch (storage_) {
      case ResidualStorage::kFull: return {.full = reinterpret_cast<float*>(data)};
      case ResidualStorage::kBf16: return {.halves = reinterpret_cast<std::uint16_t*>(data)};
      case ResidualStorage::kInt8: break;
    }
    return {.codes = reinterpret_cast<std::int8_t*>(data),
            .scales = reinterpret_cast<float*>(scales_.bytes().data())};
  }

  // What a step starts from: zeros every `reset` steps, 0: never.
  RestingResidual at_step(std::uint64_t step, std::int64_t reset) const {
    const auto every = static_cast<std::uint64_t>(reset);
    return every > 0 && step > 0 && step % every == 0 ? RestingResidual() : at_rest();
  }

  // Enqueues that all elements become `values`, which are finite. `stage` as StoredResidual's.
  Status store(const float* values, const Compressor::Placement& where, int stage,
               std::uint64_t step, const Stream& stream) const {
    const std::int64_t count = shape_.elems();
    if (count == 0) return {};
    const RandomStream draws(where.seed, RandomUse::kResidualRounding, where.tensor, where.rank,
                             stage, step);
    const OnDevice here(where.device);
    GW_TRY(here.status());
    return launch("error feedback: store", StoreResidual{values, count, draws, at_rest()},
                  blocks_for(count, 8 * StoreResidual::kBlock), stream);
  }

  std::vector<NamedTensor> state() const {
    const DType type = storage_ == ResidualStorage::kFull   ? DType::kF32
                       : storage_ == ResidualStorage::kBf16 ? DType::kBF16
                                                            : DType::kI8;
    std::vector<NamedTensor> all{{std::string(kResidualState),
                                  {elements_.bytes().data(), shape_, type, elements_.device()}}};
    if (storage_ != ResidualStorage::kInt8) return all;
    const auto blocks = static_cast<std::int64_t>((shape_.elems() + 255) / 256);
    all.push_back({std::string(kResidualScales),
                   {scales_.bytes().data(), Shape::vector(blocks), DType::kF32, scales_.device()}});
    return all;
  }

 private:
  Shape shape_;
  ResidualStorage storage_ = ResidualStorage::kFull;
  Buffer elements_;
  Buffer scales_;  // of kInt8
};

}  // namespace gradwire::cuda
