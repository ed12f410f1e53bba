// `gradwire compare`: the same model and data under several compressors and seeds, side by side.
#pragma once

#include "apps/command.h"

namespace gradwire {
Result<int> compare_main(const std::vector<std::string>& args);
}  // namespace gradwire
