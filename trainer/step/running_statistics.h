// What layers remember of the samples that they have seen (batch norm's running mean and variance).
#pragma once

#include <span>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Of the layers that are here; empty for most models. A step's passes collect sums, which the ranks
// of Scope::kData add up; each moves its values by them, so that all have the same ones. From the
// thread that trains.
class RunningStatistics {
 public:
  virtual ~RunningStatistics() = default;

  // The values, which are saved and loaded with parameters: tensor by tensor, and one after
  // another. Views valid for this object's life, also when it is moved.
  virtual std::vector<NamedTensor> buffers() = 0;
  virtual std::span<float> buffer_values() = 0;

  // After a step's last micro-batch: statistics() has what its passes collected, wherever they
  // computed. Waits for a device.
  virtual Status take_statistics() = 0;
  // Sums since the last commit(); where nothing is collected, empty.
  virtual std::span<double> statistics() = 0;
  // Moves the values by statistics(), of as many ranks as are in these sums, and clears those.
  virtual void commit() = 0;
  // After a step that is left out: forgets what it collected.
  virtual void discard_statistics() = 0;
};

}  // namespace gradwire
