// Which device's context a thread has. CUDA makes one, of some hundred MB, on whatever device a
// call finds current, and that is device 0 in every new thread.
#pragma once

namespace gradwire::cuda {

// While it lives the thread has a context: its own, or of the device that gradwire used last, where
// it had none; then it has none again. For calls that are of no device.
class SomeContext {
 public:
  SomeContext();
  ~SomeContext();
  SomeContext(const SomeContext&) = delete;
  SomeContext& operator=(const SomeContext&) = delete;

 private:
  bool lent_ = false;
};

}  // namespace gradwire::cuda
