// One rank's steps of a codec, with their memory; errors end the program.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compress/error_feedback/ef14.h"
#include "gradwire/registry.h"

namespace gradwire::bench {

inline void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "codec_goals: error: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}
template <typename T>
T must(Result<T> result) {
  if (!result.has_value()) must(Status(result.error()));
  return std::move(result).value();
}

inline Shape vector_of(std::span<const float> x) {
  return Shape::vector(static_cast<std::int64_t>(x.size()));
}

// One rank's coder of a spec, with the memory of its steps.
class Step {
 public:
  Step(const char* spec, Shape shape, std::span<const float> x, bool feedback)
      : compressor_(must(Registry::builtin().make(spec))),
        shape_(shape),
        mean_(x.size()),
        gradient_(reinterpret_cast<const std::byte*>(x.data()), shape, DType::kF32) {
    const Compressor::Placement where{.tensor = 1};
    coder_ = must(compressor_->open(shape, where));
    if (feedback) coder_ = must(make_ef14(std::move(coder_), shape, where));
    rounds_ = compressor_->traits().rounds;
    payload_.resize(static_cast<std::size_t>(rounds_));
    for (int r = 0; r < rounds_; ++r) {
      payload_[static_cast<std::size_t>(r)].resize(
          compressor_->max_payload_bytes(shape, DType::kF32, r));
    }
    all();
  }

  void begin() { must(coder_->begin(gradient_, step_++, {})); }
  void encode(int round) {
    auto& payload = payload_[static_cast<std::size_t>(round)];
    must(coder_->encode(round, payload, {}));
  }
  void absorb(int round) {
    const std::array<ConstByteSpan, 1> received{payload_[static_cast<std::size_t>(round)]};
    must(coder_->absorb(round, received, {}));
  }
  void finish() {
    must(coder_->finish({reinterpret_cast<std::byte*>(mean_.data()), shape_, DType::kF32}, {}, {}));
  }
  void begin_and_encode() {
    begin();
    encode(0);
  }
  void all() {
    begin();
    for (int r = 0; r < rounds_; ++r) {
      encode(r);
      absorb(r);
    }
    finish();
  }

 private:
  std::unique_ptr<Compressor> compressor_;
  std::unique_ptr<Coder> coder_;
  Shape shape_;
  int rounds_ = 1;
  std::vector<std::vector<std::byte>> payload_;
  std::vector<float> mean_;
  ConstTensorView gradient_;
  std::uint64_t step_ = 0;
};

}  // namespace gradwire::bench
