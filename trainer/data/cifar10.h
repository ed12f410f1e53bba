// The binary version of CIFAR-10.
#pragma once

#include <string>

#include "gradwire/status.h"
#include "trainer/data/data_set.h"

namespace gradwire {

inline constexpr SampleShape kCifar10Shape{3, 32, 32};

// Records of 3,073 bytes: a label 0..9, then 1,024 red, green and blue bytes, row by row. Plain or
// gzip. kCorruptPayload for an empty file, a broken last record or a label above 9.
Result<Samples> read_cifar10(const std::string& path);

}  // namespace gradwire
