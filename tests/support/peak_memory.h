// How much more memory this process has held at once since a moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

namespace gradwire {

class PeakMemory {
 public:
  // From now on: what is held already, the caller's own tensors, does not count.
  explicit PeakMemory(std::string status = "/proc/self/status") : status_(std::move(status)) {
    std::ofstream("/proc/self/clear_refs") << 5;  // the peak is what is held now
    begin_ = kilobytes("VmRSS:");
  }
  // Bytes, at the peak; SIZE_MAX, which is within no bound, where the system does not tell.
  std::size_t growth() const {
    const std::size_t peak = kilobytes("VmHWM:");
    if (begin_ == 0 || peak == 0) return SIZE_MAX;
    return peak > begin_ ? (peak - begin_) << 10 : 0;
  }

 private:
  std::size_t kilobytes(const std::string& name) const {
    std::ifstream status(status_);
    for (std::string word; status >> word;) {
      std::size_t value = 0;
      if (word == name && status >> value) return value;
    }
    return 0;
  }

  std::string status_;
  std::size_t begin_ = 0;
};

}  // namespace gradwire
