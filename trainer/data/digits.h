// The handwritten digits that the project carries (data/README.md).
#pragma once

#include <string>

#include "gradwire/status.h"
#include "trainer/data/data_set.h"

namespace gradwire {

inline constexpr SampleShape kDigitsShape{1, 8, 8};
inline constexpr std::int64_t kDigitsCount = 1797;
inline constexpr std::int64_t kDigitsTrain = 1437;  // the first so many train, the rest test

// Lines of 65 comma-separated integers, 64 pixels of 0..16 and the label 0..9. Plain or gzip.
// kCorruptPayload names the line, the value seen and the value wanted; any number of lines is fine.
Result<Samples> read_digits(const std::string& path);

}  // namespace gradwire
