// Communicators whose tensors on a device go by something else than messages (NCCL), and that have
// messages between the same ranks below.
#pragma once

#include <memory>

#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

class MessagesBelow {
 public:
  // As Communicator::split(), of a communicator over messages alone, by which tensors on a device
  // travel as they do where there is nothing else. It waits for nothing that is under way.
  virtual Result<std::unique_ptr<Communicator>> split_messages(int color, int key) = 0;

 protected:
  ~MessagesBelow() = default;
};

// Null where everything goes by messages, or by memory that ranks share. Lent.
inline MessagesBelow* messages_below(Communicator& communicator) {
  return dynamic_cast<MessagesBelow*>(&communicator);
}

}  // namespace gradwire
