// A coder that may leave the next residual incomplete.
#pragma once

#include "gradwire/coder.h"

namespace gradwire {

// Of a coder with begin_with_feedback() whose `own` is cheap to make again: instead of taking it
// away in a pass over memory, it remembers what `next` lacks and takes that away when the next step
// reads the residual anyway.
class OwingCoder : public Coder {
 public:
  // From now on residuals may be left so. The caller lends `next` of one finished step as the
  // residual of the following ones, and calls settle() before anybody else reads it.
  virtual void allow_owing() = 0;
  // Whether the next of the last step that finished lacks something. What it will be is finite.
  virtual bool owes() const = 0;
  // Completes that memory; nothing is owed then.
  virtual void settle(TensorView residual) = 0;
};

}  // namespace gradwire
