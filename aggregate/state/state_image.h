// State that lies on a device, as host memory: what is saved, carried over and rescaled.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "aggregate/exchange.h"
#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Entries that lie in host memory are their own image.
class StateImage {
 public:
  // Copies `state`, and waits for that: what the aggregator's lane has been given before is in it.
  // Errors are the device's, or kTimedOut as of ExchangeContext::await_lane().
  static Result<StateImage> take(const ExchangeContext& context, std::vector<NamedTensor> state);

  // In host memory, which lives as long as this object.
  const std::vector<NamedTensor>& tensors() const { return here_; }
  // Copies the image back to where it was taken, and waits for that.
  Status put_back(const ExchangeContext& context) const;

 private:
  std::vector<NamedTensor> there_;
  std::vector<NamedTensor> here_;
  std::vector<Buffer> memory_;
};

}  // namespace gradwire
