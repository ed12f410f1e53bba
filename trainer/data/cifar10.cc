#include "trainer/data/cifar10.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/text.h"
#include "trainer/data/file_bytes.h"

namespace gradwire {

Result<Samples> read_cifar10(const std::string& path) {
  constexpr std::size_t kPixels = kCifar10Shape.elems();
  constexpr std::size_t kRecord = 1 + kPixels;
  GW_ASSIGN(const std::vector<std::uint8_t> bytes, read_file_bytes(path, std::size_t{1} << 30));
  if (bytes.empty() || bytes.size() % kRecord != 0) {
    return Status(Code::kCorruptPayload,
                  format("%s: %zu bytes (expected a positive multiple of the record's %zu)",
                         path.c_str(), bytes.size(), kRecord));
  }
  Samples samples;
  samples.pixels.reserve(bytes.size() / kRecord * kPixels);
  for (std::size_t at = 0; at < bytes.size(); at += kRecord) {
    if (bytes[at] > 9) {
      return Status(Code::kCorruptPayload, format("%s: label %d in record %zu (expected 0 to 9)",
                                                  path.c_str(), bytes[at], at / kRecord));
    }
    samples.labels.push_back(bytes[at]);
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at + 1);
    samples.pixels.insert(samples.pixels.end(), first, first + kPixels);
  }
  return samples;
}

}  // namespace gradwire
