// What bounds operations, told to those who wait for something else on their behalf.
#pragma once

#include "gradwire/communicator.h"

namespace gradwire {

// Of a communicator that says how long its operations may take where they name no deadline.
class Bounded {
 public:
  virtual double deadline_seconds() const = 0;

 protected:
  ~Bounded() = default;
};

// CommunicatorOptions::deadline_seconds of this communicator; the default where it does not say.
inline double deadline_seconds(const Communicator& communicator) {
  const auto* bounded = dynamic_cast<const Bounded*>(&communicator);
  return bounded != nullptr ? bounded->deadline_seconds() : CommunicatorOptions().deadline_seconds;
}

}  // namespace gradwire
