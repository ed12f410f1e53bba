// Codes each step as one of several coders of the same method would.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gradwire/coder.h"

namespace gradwire {

class ScheduledCoder final : public Coder {
 public:
  using Open = std::function<Result<std::unique_ptr<Coder>>(std::size_t stage)>;
  // `firsts`: the step at which each stage begins, ascending, the first 0. `coder`: stage 0's.
  // `open` makes the others'; all have state of the same names and shapes, and all or none take
  // feedback.
  ScheduledCoder(std::vector<std::uint64_t> firsts, Open open, std::unique_ptr<Coder> coder)
      : firsts_(std::move(firsts)), open_(std::move(open)), coder_(std::move(coder)) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) override;
  bool takes_feedback() const override { return coder_->takes_feedback(); }
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step,
                             const Stream& stream) override;
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    return coder_->encode(round, payload, stream);
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    return coder_->absorb(round, payloads, stream);
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream) override;
  std::vector<NamedTensor> state() override { return coder_->state(); }

 private:
  // Makes coder_ that of `step`, with what the last one kept.
  Status change_to(std::uint64_t step, const Stream& stream);

  std::vector<std::uint64_t> firsts_;
  Open open_;
  std::size_t stage_ = 0;
  std::unique_ptr<Coder> coder_;
  std::unique_ptr<Coder> last_;  // its state's views are valid until the next finish()
};

}  // namespace gradwire
