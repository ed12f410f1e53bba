// How much more memory this process has held at once since a moment.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace gradwire {

class PeakMemory {
 public:
  // From now on: what is held already, the caller's own tensors, does not count.
  PeakMemory() {
    std::ofstream("/proc/self/clear_refs") << 5;  // the peak is what is held now
    begin_ = kilobytes("VmRSS:");
  }
  // Bytes, at the peak; 0 where the system does not tell.
  std::size_t growth() const {
    const std::size_t peak = kilobytes("VmHWM:");
    return peak > begin_ ? (peak - begin_) << 10 : 0;
  }

 private:
  static std::size_t kilobytes(const std::string& name) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      std::size_t value = 0;
      if (word == name && status >> value) return value;
    }
    return 0;
  }
  std::size_t begin_ = 0;
};

}  // namespace gradwire
